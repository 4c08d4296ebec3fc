// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Live begins the op of one of the registry's calls in a move while all guests write, and returns.
// in is the body of the call, a type of package api with a name that begins with Live. Before
// LiveEndRound and LiveUntrack it stops a running copy.
func (p *Parts) Live(ctx context.Context, opID string, in any) error {
	live, err := liveInput(in)
	if err != nil {
		return err
	}
	if live.Kind == move.KindLiveEnd || live.Kind == move.KindLiveUntrack {
		if err := p.stopLiveCopies(ctx, live.MigrationID); err != nil {
			return err
		}
	}
	_, err = p.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: live.Kind, Body: in,
		Decide: func(ctx context.Context) (request.Input, error) { return live, p.decideLive(ctx, live) },
	})
	return err
}

func liveInput(in any) (*move.LiveInput, error) {
	var live move.LiveInput
	switch in := in.(type) {
	case api.LiveTrack:
		live = move.LiveInput{Kind: move.KindLiveTrack, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveSwap:
		live = move.LiveInput{Kind: move.KindLiveSwap, LiveVolume: in.LiveVolume, Generation: in.Generation, Round: in.Round}
	case api.LiveRound:
		live = move.LiveInput{
			Kind: move.KindLiveRound, LiveVolume: in.LiveVolume, CopyOptions: in.CopyOptions,
			Generation: in.Generation, Round: in.Round, FromBytes: in.FromBytes, UntilBytes: in.UntilBytes,
			WriteBytesPerSecond: in.WriteBytesPerSecond,
		}
	case api.LiveEndRound:
		live = move.LiveInput{Kind: move.KindLiveEnd, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveLastRead:
		live = move.LiveInput{Kind: move.KindLiveLastRead, LiveVolume: in.LiveVolume, Generation: in.Generation}
	case api.LiveLastCopy:
		live = move.LiveInput{Kind: move.KindLiveLast, LiveVolume: in.LiveVolume, CopyOptions: in.CopyOptions, Generation: in.Generation}
	case api.LiveUntrack:
		live = move.LiveInput{Kind: move.KindLiveUntrack, LiveVolume: in.LiveVolume, Generation: 1}
	default:
		return nil, fmt.Errorf("%T is no call of a move while all guests write", in)
	}
	return &live, checkLive(&live)
}

func checkLive(in *move.LiveInput) error {
	if err := preflight.CheckLiveVolume(&in.LiveVolume); err != nil {
		return err
	}
	size := in.Src.SizeBytes
	inside := func(off int64) bool {
		return off >= 0 && off <= size && (off%in.UnitBytes == 0 || off == size)
	}
	switch {
	case in.Dst.Path == "":
		return api.Errorf(api.CodeInvalidArgument, "dst has to be a place")
	case in.Generation < 1 || in.Round < 0 || in.Kind == move.KindLiveSwap && in.Round < 1:
		return api.Errorf(api.CodeInvalidArgument, "generation is %d and round is %d", in.Generation, in.Round)
	case in.WriteBytesPerSecond < 0:
		return api.Errorf(api.CodeInvalidArgument, "write_bytes_per_second is %d", in.WriteBytesPerSecond)
	case !inside(in.FromBytes) || !inside(in.UntilBytes) || in.FromBytes > in.UntilBytes, in.Round > 0 && in.UntilBytes > 0:
		return api.Errorf(api.CodeInvalidArgument, "the share from %d to %d is not of whole units of a volume of %d bytes", in.FromBytes, in.UntilBytes, size)
	}
	return in.CopyOptions.Check()
}

// decideLive adds to the registry's call the guests' disks, and the kinds of src and dst.
func (p *Parts) decideLive(ctx context.Context, in *move.LiveInput) (err error) {
	if in.Guests, err = p.liveGuests(ctx, in); err != nil {
		return err
	}
	if in.Kind == move.KindLiveEnd || in.Kind == move.KindLiveUntrack {
		return nil
	}
	if err := p.preflight.CheckPlace(ctx, in.VolumeName, in.Src, in.Instances...); err != nil {
		return err
	}
	if err := p.preflight.CheckPlace(ctx, in.VolumeName, in.Dst); err != nil {
		return err
	}
	if in.Kind != move.KindLiveRound && in.Kind != move.KindLiveLast {
		return nil
	}
	src, err := p.images.Inspect(ctx, in.Src)
	if err != nil {
		return err
	}
	dst, err := p.images.Inspect(ctx, in.Dst)
	if err != nil {
		return err
	}
	in.SrcBlock, in.DstBlock = src.Block, dst.Block
	return nil
}

// liveGuests returns this host's guests at the move's beginning, from the journal: during a move
// no instance gets or loses the volume. At the first call it looks up the guests.
func (p *Parts) liveGuests(ctx context.Context, in *move.LiveInput) ([]move.LiveGuest, error) {
	ops, err := p.journal.Group(ctx, in.Group())
	if err != nil {
		return nil, request.JournalError(err)
	}
	if len(ops) > 0 {
		var first move.LiveInput
		if err := json.Unmarshal(ops[0].Input, &first); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", ops[0].ID, err)
		}
		if !slices.Equal(first.Instances, in.Instances) {
			return nil, api.Errorf(api.CodeConflict, "the instances of migration %s on this host were %q, and are %q now", in.MigrationID, first.Instances, in.Instances)
		}
		return first.Guests, nil
	}
	if in.Kind != move.KindLiveTrack {
		return nil, nil // nothing was begun here
	}
	vol, err := p.registry.Volume(ctx, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := p.preflight.CheckRecorded(ctx, vol); err != nil {
		return nil, err
	}
	var guests []move.LiveGuest
	for _, id := range in.Instances {
		att, err := preflight.AttachmentOf(&vol, id)
		if err != nil {
			return nil, err
		}
		dom, err := p.hv.Domain(ctx, id)
		if err != nil {
			return nil, look.HVRefusal(err)
		}
		guests = append(guests, move.LiveGuest{ID: id, Name: dom.Name, Target: att.Device})
	}
	return guests, nil
}

// stopLiveCopies ends the copies of a move. Requests that wait for the copies then begin.
func (p *Parts) stopLiveCopies(ctx context.Context, migrationID string) error {
	for _, st := range p.runner.Active() {
		if st.Op.Group != move.LiveGroup(migrationID) || st.Op.Kind != move.KindLiveRound && st.Op.Kind != move.KindLiveLast {
			continue
		}
		if st.State == op.StateNeedsOperator {
			if err := p.runner.Continue(ctx, st.Op.ID); err != nil && !errors.Is(err, op.ErrNotParked) && !errors.Is(err, op.ErrFinished) {
				return fmt.Errorf("let the copy of op %s end: %w", st.Op.ID, err)
			}
		}
		err := p.runner.Interrupt(st.Op.ID, history.ErrCancelled)
		if err != nil && !errors.Is(err, op.ErrFinished) && !errors.Is(err, op.ErrCommitted) {
			return fmt.Errorf("stop the copy of op %s: %w", st.Op.ID, err)
		}
	}
	return nil
}
