// SPDX-License-Identifier: Apache-2.0

package led

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// The steps that copy.
const (
	CopyRoundStep = "copy_round"
	ReadLastStep  = "read_last"
	CopyLastStep  = "copy_last"
)

// A copy's key with keptSuffix is the key of the copy's stored KeptUnits.
const keptSuffix = "-kept"

type roundOutput struct {
	api.LiveOutcome
	move.RemarkOutput
}

// stepCopyRound copies this host's share of the volume in round 0. In a later round it copies the
// units that the guests wrote before the round's swap of bitmaps. It can be repeated, since the
// old bitmaps exist until the step has ended.
func (e *Env) stepCopyRound() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		slowed, err := e.throttle(ctx, in, &h)
		if err != nil {
			return err
		}
		kept, err := e.roundUnits(ctx, in, &h)
		if err != nil {
			return err
		}
		began := e.now()
		res, err := e.copyUnits(ctx, in, &h, in.CopyKey(in.Round), kept, false)
		if err != nil {
			return err
		}
		if err := e.units.KeepUnits(in.CopyKey(in.Round)+keptSuffix, move.KeptUnits{Again: res.Differing}); err != nil {
			return err
		}
		out := api.LiveOutcome{CopiedBytes: res.CopiedBytes, Seconds: e.now().Sub(began).Seconds(), DirtySeconds: max(0, e.now().Sub(h.Since).Seconds())}
		for _, d := range res.Differing {
			out.DirtyBytes += d.Bytes
		}
		// This comes before guests are paused because of the round's result.
		if err := e.stillTracked(ctx, in, h.Tracked); err != nil {
			return err
		}
		dirty, err := e.dirtyBytes(ctx, in, in.Bitmap(in.Round))
		if err != nil {
			return err
		}
		out.DirtyBytes += dirty
		return r.SetOutput(roundOutput{out, move.RemarkOutput{Remark: strings.Join(slowed, "; ")}})
	}
	// The next try can use its cursor: neither the share nor the old bitmaps change.
	return move.LiveStep(CopyRoundStep, do, nil)
}

func (e *Env) stillTracked(ctx context.Context, in *move.LiveInput, tracked []move.TrackedGuest) error {
	for _, g := range in.Guests {
		if _, err := e.sameProcess(ctx, in, g, tracked); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) roundUnits(ctx context.Context, in *move.LiveInput, h *move.LiveHistory) (move.KeptUnits, error) {
	if in.Round == 0 {
		if in.UntilBytes <= in.FromBytes {
			return move.KeptUnits{}, nil // other hosts copy the volume
		}
		return move.KeptUnits{Ranges: []copy.Range{{Offset: in.FromBytes, Bytes: in.UntilBytes - in.FromBytes}}}, nil
	}
	kept, err := e.keptUnits(in.CopyKey(in.Round - 1))
	if err != nil {
		return kept, err
	}
	kept.Ranges, err = e.readBitmaps(ctx, in, h.Tracked, in.Bitmap(in.Round-1))
	return kept, err
}

func (e *Env) keptUnits(key string) (move.KeptUnits, error) {
	kept, err := e.units.KeptUnits(key + keptSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // of an earlier generation, or nothing differed
	}
	return kept, err
}

func (e *Env) readBitmaps(ctx context.Context, in *move.LiveInput, tracked []move.TrackedGuest, name string) ([]copy.Range, error) {
	var all []copy.Range
	for _, g := range in.Guests {
		dom, err := e.sameProcess(ctx, in, g, tracked)
		if err != nil {
			return nil, err
		}
		if dom == nil {
			continue
		}
		dirty, err := e.tracker.DirtyUnits(ctx, g.ID, g.Target, name)
		if errors.Is(err, hv.ErrNotFound) {
			return nil, in.BitmapLost(g, "has no bitmap %s any more", name)
		}
		if err != nil {
			return nil, e.liveHVError(in, err)
		}
		for _, d := range dirty {
			all = append(all, copy.Range(d))
		}
	}
	slices.SortFunc(all, func(a, b copy.Range) int { return cmp.Compare(a.Offset, b.Offset) })
	return all, nil
}

// dirtyBytes estimates the dirty bytes of the bitmaps with this name, which still record writes.
// It omits guests that are off.
func (e *Env) dirtyBytes(ctx context.Context, in *move.LiveInput, name string) (sum int64, err error) {
	for _, g := range in.Guests {
		all, err := e.tracker.Tracking(ctx, g.ID, g.Target)
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, e.move.HVError(err)
		}
		for _, b := range all {
			if b.Name == name {
				sum += b.DirtyBytes
			}
		}
	}
	return sum, nil
}

func (e *Env) copyUnits(ctx context.Context, in *move.LiveInput, h *move.LiveHistory, key string, kept move.KeptUnits, still bool) (copy.UnitsResult, error) {
	if err := e.sameLiveDst(ctx, in, h); err != nil {
		return copy.UnitsResult{}, err
	}
	if err := e.mayWriteLiveDst(ctx, in); err != nil {
		return copy.UnitsResult{}, err
	}
	return e.units.CopyUnits(ctx, move.UnitsRequest{
		Key: key, Src: in.SrcImage(), Dst: in.DstImage(), SizeBytes: in.Src.SizeBytes, UnitBytes: in.UnitBytes,
		Ranges: kept.Ranges, Again: kept.Again, Still: still, Options: in.CopyOptions,
		GuestStats: e.liveGuestStats(in),
	})
}

func (e *Env) mayWriteLiveDst(ctx context.Context, in *move.LiveInput) error {
	if err := e.look.CheckFree(ctx, in.Dst.Path, location.Self{MigrationID: in.MigrationID}); err != nil {
		return e.move.HVError(e.move.RegistryError(err))
	}
	return nil
}

// liveGuestStats sums the I/O statistics of the move's guests on this host: all of them wait for
// the same storage.
func (e *Env) liveGuestStats(in *move.LiveInput) func(context.Context) (*hv.DiskStats, error) {
	return func(ctx context.Context) (*hv.DiskStats, error) {
		var sum *hv.DiskStats
		var failure error
		for _, g := range in.Guests {
			st, err := e.limits.DiskStats(ctx, g.ID, g.Target)
			if err != nil {
				failure = err
				continue
			}
			if sum == nil {
				sum = &hv.DiskStats{}
			}
			sum.ReadRequests, sum.ReadTime = sum.ReadRequests+st.ReadRequests, sum.ReadTime+st.ReadTime
			sum.WriteRequests, sum.WriteTime = sum.WriteRequests+st.WriteRequests, sum.WriteTime+st.WriteTime
			sum.FlushRequests, sum.FlushTime = sum.FlushRequests+st.FlushRequests, sum.FlushTime+st.FlushTime
		}
		if sum == nil {
			return nil, failure
		}
		return sum, nil
	}
}

// stepForgetRound removes the bitmaps that the round has copied. The copy is on stable storage.
func (e *Env) stepForgetRound() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *move.LiveInput) error {
		if in.Round == 0 {
			return nil
		}
		return e.stopTracking(ctx, in, in.Bitmap(in.Round-1))
	}
	return move.LiveStep("forget_round", do, nil)
}

func ranOn(in *move.LiveInput, g move.LiveGuest) *api.Error {
	return in.Refused(api.CodeStateForbidden, "instance %s was suspended, and somebody has let it run on", g.Name).With("ran_on", true).With("instance_id", g.ID)
}

// stepReadLast reads from the paused guests' bitmaps which units they wrote since the last swap,
// and stores the list. First a new bitmap takes over, which must stay empty: a write in it means
// that another program has resumed the guest. Then the processes may end, with their bitmaps.
func (e *Env) stepReadLast() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		if err := e.onlyGuestsHave(ctx, in); err != nil {
			return err
		}
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		for _, g := range in.Guests {
			dom, err := e.sameProcess(ctx, in, g, h.Tracked)
			if err != nil {
				return err
			}
			if dom != nil && dom.State != hv.StatePaused {
				return ranOn(in, g)
			}
			if err := e.swapGuest(ctx, in, g, h.Tracked, in.Bitmap(h.Round), in.LastBitmap()); err != nil {
				return err
			}
		}
		// The guests no longer write, and must not be saved with their limits.
		if err := e.unthrottle(ctx, in, &h); err != nil {
			return err
		}
		kept, err := e.keptUnits(in.CopyKey(h.Round))
		if err != nil {
			return err
		}
		if kept.Ranges, err = e.readBitmaps(ctx, in, h.Tracked, in.Bitmap(h.Round)); err != nil {
			return err
		}
		if err := e.units.KeepUnits(in.LastKey()+keptSuffix, kept); err != nil {
			return err
		}
		return r.SetOutput(api.LiveOutcome{DirtyBytes: kept.Bytes(), DirtySeconds: max(0, e.now().Sub(h.Since).Seconds())})
	}
	return move.LiveStep(ReadLastStep, do, nil)
}

// stepCopyLast copies the units that stepReadLast has stored. src no longer changes, so a unit of
// dst that differs from src afterwards is an error.
func (e *Env) stepCopyLast() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		if err := e.nothingWritten(ctx, in); err != nil {
			return err
		}
		kept, err := e.units.KeptUnits(in.LastKey() + keptSuffix)
		if err != nil {
			// src has everything, and is still the volume: the registry cancels the move.
			return in.Refused(api.CodeInternal, "what its guests wrote last is not kept any more: %v", err)
		}
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		began := e.now()
		res, err := e.copyUnits(ctx, in, &h, in.LastKey(), kept, true)
		if err != nil {
			return err
		}
		if err := e.nothingWritten(ctx, in); err != nil {
			return err
		}
		if err := e.onlyGuestsHave(ctx, in); err != nil { // the last check before the registry decides
			return err
		}
		if err := e.seal.SealLeft(ctx, r, in.Src.Path, CopyLastStep); err != nil {
			return err
		}
		return r.SetOutput(api.LiveOutcome{CopiedBytes: res.CopiedBytes, Seconds: e.now().Sub(began).Seconds()})
	}
	return move.LiveStep(CopyLastStep, do, nil)
}

// nothingWritten returns an error if a guest has written since stepReadLast: another program has
// resumed the guest. For a guest that is being saved, the save makes this check itself
// (StoodStill).
func (e *Env) nothingWritten(ctx context.Context, in *move.LiveInput) error {
	for _, g := range in.Guests {
		saving, err := e.domains.SavingMemory(ctx, g.ID)
		if err == nil && saving {
			continue // the save checks that, and its process does not answer
		}
		var all []hv.DirtyBitmap
		if err == nil {
			all, err = e.tracker.Tracking(ctx, g.ID, g.Target)
		}
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue
		}
		if err != nil {
			return e.move.HVError(err)
		}
		for _, b := range all {
			if b.Name == in.LastBitmap() && b.DirtyBytes > 0 {
				return ranOn(in, g)
			}
		}
	}
	return nil
}

// stepEndLive removes the write limits, the bitmaps and the kept units of a generation or of the
// whole move. No copy runs meanwhile, since its op has the volume's key too.
func (e *Env) stepEndLive(prefix, copies func(*move.LiveInput) string) op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		if err := e.unthrottle(ctx, in, &h); err != nil {
			return err
		}
		if err := e.stopTracking(ctx, in, prefix(in)); err != nil {
			return err
		}
		return e.units.ForgetUnits(copies(in))
	}
	return move.LiveStep("end", do, nil)
}

func (e *Env) stepUnguardAll() op.Step {
	return move.LiveStep("unguard", func(_ context.Context, _ *op.Run, in *move.LiveInput) error { return e.clearLiveGuards(in) }, nil)
}

// stepAdmitUntrack refuses to stop tracking while the registry's migration, with method live, is
// copying. A migration that the registry does not know may be untracked.
func (e *Env) stepAdmitUntrack() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *move.LiveInput) error {
		row, err := e.registry.Migration(ctx, in.MigrationID)
		switch {
		case api.CodeOf(err) == api.CodeNotFound:
			return nil
		case err != nil:
			return e.move.RegistryError(err)
		case row.Method == api.MethodLive && row.State == api.MigrationCopying:
			return in.Refused(api.CodeStateForbidden, "by the registry migration %s is %s: `%s` ends it", in.MigrationID, row.State, shell.Line("volferryctl", "migration", "cancel", in.MigrationID))
		}
		return nil
	}
	return move.LiveStep("admit", do, nil)
}
