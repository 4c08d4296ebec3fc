// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepNameEnd makes the persistent XML name dst before the switch, while the
// guest is paused and both chains read the same: whatever dies now, either name
// is right. It stays right if somebody resumes the guest before the switch, since
// the mirror writes to both.
func (e *Env) stepNameEnd(w way) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		v, err := e.lookAt(ctx, s)
		if err != nil {
			return err
		}
		if !v.active {
			return guestIsOff(s)
		}
		if err := v.mayName(s, w); err != nil {
			return err
		}
		if err := e.noteRun(ctx, r, s, v); err != nil {
			return err
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, w.chain(s)))
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		v, err := e.lookedInPause(ctx, r, s)
		if err != nil {
			return err
		}
		switch {
		case v.config == s.before() && (!v.active || v.live == s.before()):
			return nil
		case v.active && v.live == s.before() && v.config == w.at:
			return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.beforeChain()))
		case v.active && v.live == s.before():
			// It is somebody else's XML. The guest, which is paused, is where it was.
			return nil
		}
		// The process died after the XML had named the end: the instance may
		// have been started from there since.
		return op.UnknownOutcome(changed(s, v))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := e.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(v.config == w.at), nil
	}
	return step("name_"+string(w.at), do, undo, observe)
}

// mayName refuses a switch where somebody else has changed the persistent XML.
func (v *view) mayName(s *Spec, w way) error {
	if v.config != s.before() && v.config != w.at {
		return changed(s, v)
	}
	return nil
}

// stepNameLeft is the same for the way back to src, after the switch: a commit
// does not write to both, so the XML names the overlay as long as the guest may
// write to it. libvirt has renamed it with the switch; this makes sure. What somebody
// else has made of the XML is not for a paused guest to wait for: stepSettle tells.
func (e *Env) stepNameLeft(w way) op.Step {
	named := func(v *view) bool {
		return v.config == w.at || v.config != onOverlay && v.active && v.live == w.at
	}
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		v, err := e.lookedInPause(ctx, r, s)
		switch {
		case err != nil:
			return err
		case named(v):
			return nil
		case !v.active || v.live != w.at:
			// It may have been started on the overlay again.
			return op.UnknownOutcome(changed(s, v))
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, w.chain(s)))
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		v, err := e.lookAt(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(named(v)), nil
	}
	return step("name_"+string(w.at), do, nil, observe)
}

// pivotRetry is how long to wait when QEMU says that the job is not ready.
const pivotRetry = 5 * time.Millisecond

// stepPivot makes the end the running guest's disk. It is the commit point. If
// the process died in the window and the persistent XML names the end, there is
// nothing left to switch: the paused guest's last write is in both chains.
func (e *Env) stepPivot(w way) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		v, err := e.lookAt(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case v.active && v.live == w.at, !v.active && v.config == w.at:
			return nil
		case !v.active:
			return guestIsOff(s)
		}
		clean, err := e.drained(ctx, s, w, v)
		if err != nil {
			return err
		}
		if !clean {
			return op.Retry(pivotRetry, api.Errorf(api.CodeInstanceBusy, "the fold into %s is not clean yet", w.to(s).Path))
		}
		err = e.hv.Pivot(ctx, s.InstanceID, s.Target)
		if err == nil {
			return nil
		}
		if v, lookErr := e.lookedInPause(ctx, r, s); lookErr == nil && v.active && v.live == s.before() && v.mirror == nil {
			return foldEnded(s, w.to(s)) // it is another process by now
		}
		return e.guestError(ctx, s, err)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		v, err := e.lookedInPause(ctx, r, s)
		if err != nil {
			return op.Unknown, err
		}
		switch {
		case v.mirror != nil && v.mirror.Ending:
			return op.Unknown, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "the switch to %s is under way", w.to(s).Path))
		case !v.active && v.config == w.at, v.active && v.live == w.at && v.mirror == nil:
			if err := e.ranSince(ctx, r, s, w, v); err != nil {
				return op.Unknown, err
			}
			return op.Done, nil
		case v.active && v.live == s.before(), !v.active && v.config == s.before():
			return op.NotDone, nil
		}
		return op.Unknown, op.UnknownOutcome(changed(s, v))
	}
	return step("pivot", do, nil, observe)
}

// stepSettle makes sure, with the guest running again, that nothing names or
// holds the chain that was left.
func (e *Env) stepSettle(w way) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		e.progress.clear(s.MigrationID)
		if err := e.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		v, err := e.sure(ctx, s)
		if err != nil {
			return err
		}
		// Whatever else is there now may hold newer writes.
		if (v.config != w.at && v.config != s.before()) || (v.active && v.live != w.at) {
			return op.UnknownOutcome(changed(s, v))
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, w.chain(s)); err != nil {
			return e.hvError(err)
		}
		// Before anything goes of which the end is a copy: with some cache modes QEMU
		// leaves flushes out.
		if err := e.images.Flush(ctx, w.to(s).Path); err != nil {
			return op.Retry(request.BusyDelay, err)
		}
		if w.at == onDst {
			if v.active {
				if err := e.assertClosed(ctx, s, s.Src.Path); err != nil {
					return err
				}
			}
			e.giveBackSrc(ctx, s) // which no definition names any more
		}
		if !v.active || s.Overlay == "" {
			return nil
		}
		return e.assertClosed(ctx, s, s.Overlay)
	}
	return step("settle", do, nil, nil)
}

// assertClosed waits until the guest's process has let go of an image.
func (e *Env) assertClosed(ctx context.Context, s *Spec, path string) error {
	files, err := e.hv.OpenFiles(ctx, s.InstanceID, path)
	if err != nil {
		return op.Retry(frozenRetry, err)
	}
	if len(files) > 0 {
		return op.Retry(frozenRetry, api.Errorf(api.CodeInstanceBusy, "instance %s still has %s open", s.InstanceName, path))
	}
	return nil
}
