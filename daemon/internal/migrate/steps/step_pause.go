// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/retry"
)

func (e *Env) stepPause(w pauseWindow) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.mayPause(); err != nil {
			return err
		}
		disk, err := e.readActive(ctx, s)
		if err != nil {
			return err
		}
		if err := mayPauseGuest(ctx, r, s, w, disk.dom.PauseReason); err != nil {
			return err
		}
		var note pauseNote
		again, err := r.Noted(w.begin, &note)
		if err != nil {
			return err
		}
		// On a repeated try a paused guest may have been paused by the first try. A running guest
		// was resumed or started since.
		running := disk.dom.State == hv.StateRunning
		if !again || note.Early || (running && !note.Resume) {
			resume := note.Resume || running || w.cures && disk.dom.PauseReason == hv.PauseIOError
			note = pauseNote{Resume: resume}
			if err := r.Note(ctx, note); err != nil {
				return err
			}
		}
		if !running {
			// Do not call Suspend: a guest that was started at this moment would stay paused for
			// good, since the note would not resume it.
			return nil
		}
		e.progress.pausedAt(s.MigrationID, e.now())
		if err := e.hv.Suspend(ctx, s.InstanceID); err != nil {
			if now, readErr := e.runState(ctx, s); readErr == nil {
				if asleep := mayPauseGuest(ctx, r, s, w, now.PauseReason); asleep != nil {
					return asleep // since the read above
				}
			}
			return e.guestError(ctx, s, err)
		}
		return nil
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note pauseNote
		if noted, err := r.Noted(w.begin, &note); err != nil || !noted || note.Early {
			return op.NotDone, err
		}
		now, err := e.runState(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		if err := mayStillPause(s, now); err != nil {
			return op.Unknown, err
		}
		if err := mayPauseGuest(ctx, r, s, w, now.PauseReason); err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(now.State == hv.StatePaused), nil
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if ended, err := pauseEnded(r, w); err != nil || ended {
			return err // if it is paused again, a person paused it
		}
		if now, err := e.runState(ctx, s); err != nil {
			return err
		} else if err := mayStillPause(s, now); err != nil {
			return err
		}
		if err := e.resume(ctx, r, s, w); err != nil {
			return err
		}
		e.progress.takePause(s.MigrationID) // the next pause is another one
		return nil
	}
	return step(w.begin, do, undo, observe)
}

// stepPauseToSwitch pauses the guest for the switch to the end of a direction. Before that it
// checks that the end is still the image that the migration began with, and that it answers: QEMU
// waits for the image when it suspends a guest.
func (e *Env) stepPauseToSwitch(to direction) op.Step {
	checks := []func(context.Context, *Spec) error{e.endUnchanged(to)}
	if to.end == OnDst {
		checks = append(checks, e.sealedStill, e.dstStillAnswers)
	}
	pause := e.stepPause(toSwitch)
	do := pause.Do
	pause.Do = func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err == nil {
			err = e.flushBeforeSwitch(ctx, r, s, to)
		}
		if err != nil {
			return err
		}
		return do(ctx, r)
	}
	return provided(pause, checks...)
}

// mayPauseGuest makes the op wait for a guest that is asleep or has crashed: it cannot be paused,
// and may continue at any moment. The op has not paused it, so a note of a pause is withdrawn: if
// the guest is paused at the next look, its owner has paused it.
func mayPauseGuest(ctx context.Context, r *op.Run, s *Spec, w pauseWindow, is hv.PauseReason) error {
	why := request.Standstill(is, s.InstanceName)
	if why == "" {
		return nil
	}
	var note pauseNote
	if noted, err := r.Noted(w.begin, &note); err != nil {
		return err
	} else if noted && !note.Early {
		if err := r.Note(ctx, pauseNote{Early: true, flushingNote: note.flushingNote}); err != nil {
			return err
		}
	}
	return op.WaitFor(request.WaitWake, api.Errorf(api.CodeInstanceBusy, "the switch of volume %s waits: %s, and the switch is made then", s.VolumeName, why))
}

// mayStillPause makes the op wait if the guest runs during a call on its process. The call may be
// the op's own suspend with a lost answer, and nothing would resume the guest.
func mayStillPause(s *Spec, now hv.RunState) error {
	if now.State != hv.StateRunning || !now.Occupied {
		return nil
	}
	return op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "a call of libvirt on instance %s is under way", s.InstanceName))
}

// pauseEnded reports whether the op's pause is over: the guest was resumed, unless it was to stay
// paused.
func pauseEnded(r *op.Run, w pauseWindow) (bool, error) {
	var over resumeOutput
	if ended, err := r.Output(w.end, &over); err != nil || ended || w != toSwitch {
		return ended, err
	}
	var note mismatchNote
	_, err := r.Noted(compareStep, &note)
	return note.PauseEnded, err
}

func (e *Env) resume(ctx context.Context, r *op.Run, s *Spec, w pauseWindow) error {
	var note pauseNote
	if _, err := r.Noted(w.begin, &note); err != nil || !note.Resume {
		return err
	}
	now, err := e.runState(ctx, s)
	if err != nil {
		return err
	}
	if now.State != hv.StatePaused {
		e.unresumed.Runs(s.MigrationID)
		return nil
	}
	if err := e.resumeNow(ctx, s); err != nil {
		return err
	}
	e.progress.pauseEnded(s.MigrationID, e.now())
	return nil
}

// resumeNow resumes a guest that the migration has paused. A failed resume is repeated until it
// succeeds; meanwhile the guest is shown as not resumed.
func (e *Env) resumeNow(ctx context.Context, s *Spec) error {
	return e.hvError(e.unresumed.Ended(s.MigrationID, s.InstanceName, "the move of volume "+s.VolumeName, e.hv.Resume(ctx, s.InstanceID)))
}

// Unresumed returns why the guest of a migration is paused that libvirt does not resume, or "".
func (e *Env) Unresumed(migrationID string) string { return e.unresumed.Text(migrationID) }

// runState reports whether the guest runs. Its errors are typed for the runner.
func (e *Env) runState(ctx context.Context, s *Spec) (hv.RunState, error) {
	now, err := e.hv.RunState(ctx, s.InstanceID)
	return now, e.hvError(err)
}

// resumeOutput is the cost of a pause for the guest.
type resumeOutput struct {
	// StallMS is how long the guest was paused, as measured by the host; nil if it was not paused,
	// or if a restart of the daemon lost the beginning.
	StallMS *float64 `json:"stall_ms"`
}

func (e *Env) stepResume(w pauseWindow) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error { return e.resume(ctx, r, s, w) }
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note pauseNote
		if _, err := r.Noted(w.begin, &note); err != nil {
			return op.Unknown, err
		}
		now, err := e.runState(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		if note.Resume && now.State == hv.StatePaused {
			return op.NotDone, nil
		}
		e.unresumed.Runs(s.MigrationID)
		return op.Done, r.SetOutput(e.pauseOutput(s, note))
	}
	return step(w.end, do, nil, observe)
}

func (e *Env) pauseOutput(s *Spec, note pauseNote) resumeOutput {
	p := e.progress.takePause(s.MigrationID)
	if !note.Resume || p.began.IsZero() {
		return resumeOutput{}
	}
	if p.ended.IsZero() { // the answer to our resume was lost, or another program resumed the guest
		p.ended = e.now()
	}
	return resumeOutput{StallMS: milliseconds(p.ended.Sub(p.began))}
}

// stepDrain waits until the job of the paused guest has copied everything.
func (e *Env) stepDrain(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		var note flushingNote
		if _, err := r.Noted(drainStep, &note); err != nil {
			return err
		}
		if note.Flushing {
			return flushUnanswered(s, to, heldUp)
		}
		began := e.now()
		for {
			disk, err := e.readDisk(ctx, s)
			if err != nil {
				return err
			}
			clean, err := e.drained(ctx, s, to, disk)
			if err != nil {
				return err
			}
			if clean {
				if err := e.mayLeave(ctx, s, to, true); err != nil {
					return err
				}
				return e.flushInPause(ctx, r, s, to, disk)
			}
			if e.stopping.Err() != nil { // the guest must not stay paused for the job
				return &errWorldChanged{"the daemon was stopped while the job of a switch was waited for"}
			}
			// The guest does not write, so this ends unless the image that the job writes to is
			// stuck.
			waited := e.now().Sub(began)
			if waited > DrainBound {
				return e.givesUpPause(ctx, s, to)
			}
			if err := retry.Sleep(ctx, drainPollFor(waited)); err != nil {
				return err
			}
		}
	}
	return step(drainStep, do, nil, nil)
}

const drainStep = "drain"

// givesUpPause ends a pause when the job takes too long. A mirror stays ready and is tried again in
// another pause.
func (e *Env) givesUpPause(ctx context.Context, s *Spec, to direction) error {
	if to.end == OnDst {
		if err := e.leaveSilentDstInPause(ctx, s); err != nil {
			return err
		}
	}
	refused := fmt.Sprintf("the copy into %s did not get clean in %s with the guest paused", to.image(s).Path, DrainBound)
	switch {
	case s.Method == MethodMirror:
		return &errWorldChanged{refused}
	case to.end == OnSrc:
		return api.Errorf(api.CodeInternal, "%s, and instance %s goes on with its overlay, since it writes as fast as the commit gets on: have it write less, or take off the limits of its disk that keep Volferry from setting one (`%s`), and cancel again; with the instance shut off a cancel needs no pause",
			refused, s.InstanceName, api.ShellLine("virsh", "blkdeviotune", "--", s.InstanceName, s.Target))
	}
	return api.Errorf(api.CodeInternal, "%s", refused)
}

// drainPollFor polls often at first, when every millisecond counts, and less often in a long pause.
func drainPollFor(waited time.Duration) time.Duration {
	return max(drainPoll, min(waited/10, jobPoll))
}

// drained reports whether the guest is paused and the job has copied everything.
func (e *Env) drained(ctx context.Context, s *Spec, to direction, disk *diskState) (bool, error) {
	if !disk.active {
		return false, guestIsOff(s)
	}
	mirror, err := disk.mirrorTo(to, s)
	if err != nil {
		return false, err
	}
	if mirror == nil {
		return false, jobEndedEarly(s, to.image(s))
	}
	if disk.dom.State == hv.StateRunning {
		// A person resumed the guest, or it is another process. The pause note must be written
		// again.
		return false, &errWorldChanged{fmt.Sprintf("instance %s was resumed by somebody while its disk was being switched", s.InstanceName)}
	}
	if disk.dom.State != hv.StatePaused || !mirror.Ready {
		return false, nil
	}
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.guestError(ctx, s, err)
	}
	return job != nil && job.Current == job.End, nil
}

// endPauseOnDisagreement resumes the guest if err reports that the witnesses disagree while the op
// has the guest paused: nothing is undone, but the guest must not wait for a person.
//
// Both chains are equal in the pause, so the definition is first changed to the chain of the
// process. With dst open that chain may be unknown, and the definition is not changed: if it names
// dst, it is right, since the job writes to both images until its pivot, and the guest to dst alone
// after it. A commit, and a copy in the background, write to one image only, so neither name would
// be right once the guest writes; that guest stays paused. Other errors are returned unchanged.
func (e *Env) endPauseOnDisagreement(ctx context.Context, r *op.Run, s *Spec, w pauseWindow, err error) error {
	var disagreed *errWitnessesDisagree
	if !errors.As(err, &disagreed) || disagreed.oneSided && w == toSwitch {
		return err
	}
	chains := map[Position][]hv.Image{OnSrc: s.SrcChain(), OnDst: s.DstChain()}
	if s.Overlay != "" {
		chains[OnOverlay] = s.OverlayChain()
	}
	if _, ours := chains[disagreed.config]; ours && disagreed.at != Foreign && disagreed.at != disagreed.config {
		if nameErr := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, chains[disagreed.at]); nameErr != nil {
			return e.hvError(nameErr)
		}
	}
	if resumeErr := e.resume(ctx, r, s, w); resumeErr != nil {
		return resumeErr
	}
	return err
}

// confirmDiskInPause is confirmDiskOfPaused for a step in the pause of a switch. A commit that
// libvirt no longer knows may have been pivoted there.
func (e *Env) confirmDiskInPause(ctx context.Context, r *op.Run, s *Spec) (*diskState, error) {
	disk, err := e.confirmDiskOfPaused(ctx, s)
	if err == nil && disk.maybeUnderCommit() {
		err = e.commitIsOver(ctx, s)
	}
	if err != nil {
		return nil, e.endPauseOnDisagreement(ctx, r, s, toSwitch, err)
	}
	return disk, nil
}

// commitIsOver waits until QEMU has reopened src for reading only, which takes a moment after a
// commit has failed. If it does not, the guest may be on src.
func (e *Env) commitIsOver(ctx context.Context, s *Spec) error {
	var unknown error
	if _, err := retry.Poll(ctx, agreement.Poll, agreement.Bound, func() (bool, error) {
		unknown = e.unknownCommit(ctx, s)
		return unknown == nil, nil
	}); err != nil {
		return err
	}
	return unknown
}
