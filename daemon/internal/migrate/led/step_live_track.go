// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The steps before the first round.
const (
	TrackStep      = "track"
	guardLiveStep  = "guard"
	whyGuardedLive = "its volume moves while its guests write, and nobody would follow what this guest writes"
)

// stepGuardLive prevents starts of guests until it is known which guests are off and which are
// tracked.
func (e *Env) stepGuardLive() op.Step {
	do := func(_ context.Context, _ *op.Run, in *move.LiveInput) error {
		if err := e.guards.Enforced(); err != nil {
			return in.Refused(api.CodeStateForbidden, "guests that are off would have to be kept off, and %v; `volferryctl doctor` says what to do", err)
		}
		for _, g := range in.Guests {
			if err := e.guards.Set(g.ID, in.Owner(), whyGuardedLive); err != nil {
				return err
			}
		}
		return nil
	}
	undo := func(_ context.Context, _ *op.Run, in *move.LiveInput) error { return e.clearLiveGuards(in) }
	return move.LiveStep(guardLiveStep, do, undo)
}

func (e *Env) clearLiveGuards(in *move.LiveInput) error {
	for _, g := range in.Guests {
		if err := e.guards.Clear(g.ID, in.Owner()); err != nil {
			return err
		}
	}
	return nil
}

// stepTrack makes a bitmap in the process of each running guest. Its output has the guests with
// their processes. Guards prevent starts of the guests meanwhile.
func (e *Env) stepTrack() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		if err := e.onlyGuestsHave(ctx, in); err != nil {
			return err
		}
		var tracked []move.TrackedGuest
		for _, g := range in.Guests {
			t := move.TrackedGuest{ID: g.ID}
			var err error
			if t.Process, err = e.trackGuest(ctx, in, g); err != nil {
				return err
			}
			if t.Process != "" {
				if t.Limit, err = e.limits.LiveWriteLimit(ctx, g.ID, g.Target); err != nil {
					return e.liveHVError(in, err)
				}
			}
			tracked = append(tracked, t)
		}
		return r.SetOutput(tracked)
	}
	undo := func(ctx context.Context, _ *op.Run, in *move.LiveInput) error {
		return e.stopTracking(ctx, in, in.GenerationPrefix())
	}
	return move.LiveStep(TrackStep, do, undo)
}

// trackGuest makes sure that a bitmap records the guest's writes, and returns the guest's process,
// or "" for a guest that is off.
func (e *Env) trackGuest(ctx context.Context, in *move.LiveInput, g move.LiveGuest) (string, error) {
	before, _, err := e.process(ctx, in, g)
	if err != nil || before == "" {
		return "", err
	}
	name := in.Bitmap(0)
	err = e.tracker.StartTracking(ctx, g.ID, g.Target, name, in.UnitBytes)
	if err != nil && !errors.Is(err, hv.ErrExists) {
		return "", e.liveHVError(in, err)
	}
	// Only the present state of the process counts.
	all, err := e.bitmaps(ctx, in, g)
	if err != nil {
		return "", err
	}
	after, _, err := e.process(ctx, in, g)
	if err != nil {
		return "", err
	}
	if b := all[name]; after != before || !b.Recording || b.UnitBytes != in.UnitBytes {
		return "", op.Retry(request.BusyDelay, in.Refused(api.CodeInstanceBusy, "instance %s was started or stopped just now", g.Name))
	}
	return before, nil
}

// stepUnguardTracked allows tracked guests to start again. A guest that is off stays guarded,
// since no bitmap would record its writes.
func (e *Env) stepUnguardTracked() op.Step {
	do := func(_ context.Context, r *op.Run, in *move.LiveInput) error {
		var tracked []move.TrackedGuest
		if _, err := r.Output(TrackStep, &tracked); err != nil {
			return err
		}
		for _, t := range tracked {
			if t.Process == "" {
				continue
			}
			if err := e.guards.Clear(t.ID, in.Owner()); err != nil {
				return err
			}
		}
		return nil
	}
	return move.LiveStep("unguard_tracked", do, nil)
}

// stepSwapLive makes the round's bitmap, and stops the previous round's bitmap, in each guest.
func (e *Env) stepSwapLive() op.Step {
	do := func(ctx context.Context, r *op.Run, in *move.LiveInput) error {
		if err := e.onlyGuestsHave(ctx, in); err != nil {
			return err
		}
		h, err := e.history.Live(ctx, in, r.OpID())
		if err != nil {
			return err
		}
		for _, g := range in.Guests {
			if err := e.swapGuest(ctx, in, g, h.Tracked, in.Bitmap(in.Round-1), in.Bitmap(in.Round)); err != nil {
				return err
			}
		}
		return nil
	}
	return move.LiveStep("swap", do, nil)
}

func (e *Env) swapGuest(ctx context.Context, in *move.LiveInput, g move.LiveGuest, tracked []move.TrackedGuest, from, to string) error {
	dom, err := e.sameProcess(ctx, in, g, tracked)
	if err != nil || dom == nil {
		return err
	}
	all, err := e.bitmaps(ctx, in, g)
	if err != nil {
		return err
	}
	before, had := all[from]
	after, has := all[to]
	switch {
	case !had:
		return in.BitmapLost(g, "has no bitmap %s any more", from)
	case has && after.Recording && !before.Recording:
		return nil
	case has || !before.Recording:
		return in.BitmapLost(g, "has a bitmap that somebody else has changed")
	}
	err = e.tracker.SwapTracking(ctx, g.ID, g.Target, from, to, in.UnitBytes)
	switch {
	case errors.Is(err, hv.ErrNotFound), errors.Is(err, hv.ErrExists), errors.Is(err, hv.ErrNotActive):
		return op.Retry(request.BusyDelay, err) // the next look shows its state
	case err != nil:
		return e.liveHVError(in, err)
	}
	return nil
}

func (e *Env) stopTracking(ctx context.Context, in *move.LiveInput, prefix string) error {
	for _, g := range in.Guests {
		err := e.tracker.StopTracking(ctx, g.ID, g.Target, prefix)
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue // an ended process has no bitmaps
		}
		if err != nil {
			return e.move.HVError(err)
		}
	}
	return nil
}
