// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/shell"
)

func (e *Env) stepPause(w move.PauseWindow) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.move.MayPause(); err != nil {
			return err
		}
		disk, err := e.look.ReadActive(ctx, s)
		if err != nil {
			return err
		}
		if err := mayPauseGuest(ctx, r, s, w, disk.Dom.PauseReason); err != nil {
			return err
		}
		var note move.PauseNote
		again, err := r.Noted(w.Begin, &note)
		if err != nil {
			return err
		}
		// A repeated try may find a guest that the first try has paused. If the guest runs, it was
		// resumed or started since.
		running := disk.Dom.State == hv.StateRunning
		if !again || note.Early || (running && !note.Resume) {
			resume := note.Resume || running || w.Cures && disk.Dom.PauseReason == hv.PauseIOError
			note = move.PauseNote{Resume: resume}
			if err := r.Note(ctx, note); err != nil {
				return err
			}
		}
		if !running {
			// A guest that was started at this moment would be suspended for good, since the note
			// does not resume it.
			return nil
		}
		e.progress.PausedAt(s.MigrationID, e.now())
		if err := e.hv.Suspend(ctx, s.InstanceID); err != nil {
			if now, readErr := e.runState(ctx, s); readErr == nil {
				if asleep := mayPauseGuest(ctx, r, s, w, now.PauseReason); asleep != nil {
					return asleep // since the read above
				}
			}
			return e.look.GuestError(ctx, s, err)
		}
		return nil
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note move.PauseNote
		if noted, err := r.Noted(w.Begin, &note); err != nil || !noted || note.Early {
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
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
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
		e.progress.TakePause(s.MigrationID) // the next pause is another
		return nil
	}
	return move.Step(w.Begin, do, undo, observe)
}

// StepPauseToSwitch pauses the guest for a switch. First it checks that the path of the new image
// (dst, or src for a cancel) still has the migration's image, and that dst answers: QEMU waits for
// dst when it suspends a guest.
func (e *Env) StepPauseToSwitch(to move.Direction) op.Step {
	checks := []func(context.Context, *move.Spec) error{e.seal.EndUnchanged(to)}
	if to.End == move.OnDst {
		checks = append(checks, e.seal.SealedStill, e.look.DstStillAnswers)
	}
	pause := e.stepPause(move.ToSwitch)
	do := pause.Do
	pause.Do = func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err == nil {
			err = e.blockjob.FlushBeforeSwitch(ctx, r, s, to)
		}
		if err != nil {
			return err
		}
		return do(ctx, r)
	}
	return seal.Provided(pause, checks...)
}

// mayPauseGuest makes the op wait for a guest that is asleep or has crashed: such a guest cannot
// be paused, and may continue at any moment. The op withdraws its note of a pause, since a later
// pause is the owner's.
func mayPauseGuest(ctx context.Context, r *op.Run, s *move.Spec, w move.PauseWindow, is hv.PauseReason) error {
	why := request.Standstill(is, s.InstanceName)
	if why == "" {
		return nil
	}
	var note move.PauseNote
	if noted, err := r.Noted(w.Begin, &note); err != nil {
		return err
	} else if noted && !note.Early {
		if err := r.Note(ctx, move.PauseNote{Early: true, FlushingNote: note.FlushingNote}); err != nil {
			return err
		}
	}
	return op.WaitFor(request.WaitWake, api.Errorf(api.CodeInstanceBusy, "the switch of volume %s waits: %s, and the switch is made then", s.VolumeName, why))
}

// mayStillPause makes the op wait if the guest runs while libvirt makes a call on its process. The
// call may be the op's own suspend, with a lost answer: later nothing would resume the guest.
func mayStillPause(s *move.Spec, now hv.RunState) error {
	if now.State != hv.StateRunning || !now.Occupied {
		return nil
	}
	return op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "a call of libvirt on instance %s is under way", s.InstanceName))
}

// pauseEnded reports whether the op's pause is over: the guest was resumed, unless it was to stay
// paused.
func pauseEnded(r *op.Run, w move.PauseWindow) (bool, error) {
	var over ResumeOutput
	if ended, err := r.Output(w.End, &over); err != nil || ended || w != move.ToSwitch {
		return ended, err
	}
	var note move.MismatchNote
	_, err := r.Noted(move.CompareStep, &note)
	return note.PauseEnded, err
}

func (e *Env) resume(ctx context.Context, r *op.Run, s *move.Spec, w move.PauseWindow) error {
	var note move.PauseNote
	if _, err := r.Noted(w.Begin, &note); err != nil || !note.Resume {
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
	e.progress.PauseEnded(s.MigrationID, e.now())
	return nil
}

// resumeNow resumes a guest that the migration has paused. It repeats a failed resume, and shows
// meanwhile that the guest is not resumed.
func (e *Env) resumeNow(ctx context.Context, s *move.Spec) error {
	return e.move.HVError(e.unresumed.Ended(s.MigrationID, s.InstanceName, "the move of volume "+s.VolumeName, e.hv.Resume(ctx, s.InstanceID)))
}

// Unresumed returns why libvirt does not resume a migration's guest, or "".
func (e *Env) Unresumed(migrationID string) string { return e.unresumed.Text(migrationID) }

func (e *Env) runState(ctx context.Context, s *move.Spec) (hv.RunState, error) {
	now, err := e.hv.RunState(ctx, s.InstanceID)
	return now, e.move.HVError(err)
}

// ResumeOutput is the cost of a pause for the guest.
type ResumeOutput struct {
	// StallMS is how long the guest was paused, measured by the host. It is nil if there was no
	// pause, or if a restart of the daemon lost the beginning.
	StallMS *float64 `json:"stall_ms"`
}

// StepResume ends a pause. It resumes the guest only if the migration suspended it.
func (e *Env) StepResume(w move.PauseWindow) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error { return e.resume(ctx, r, s, w) }
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note move.PauseNote
		if _, err := r.Noted(w.Begin, &note); err != nil {
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
	return move.Step(w.End, do, nil, observe)
}

func (e *Env) pauseOutput(s *move.Spec, note move.PauseNote) ResumeOutput {
	p := e.progress.TakePause(s.MigrationID)
	if !note.Resume || p.Began.IsZero() {
		return ResumeOutput{}
	}
	if p.Ended.IsZero() { // the answer to our resume was lost, or another program resumed the guest
		p.Ended = e.now()
	}
	return ResumeOutput{StallMS: move.Milliseconds(p.Ended.Sub(p.Began))}
}

// StepDrain waits until the block job of the paused guest has copied everything.
func (e *Env) StepDrain(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var note move.FlushingNote
		if _, err := r.Noted(DrainStep, &note); err != nil {
			return err
		}
		if note.Flushing {
			return blockjob.FlushUnanswered(s, to, blockjob.HeldUp)
		}
		began := e.now()
		for {
			disk, err := e.move.ReadDisk(ctx, s)
			if err != nil {
				return err
			}
			clean, err := e.Drained(ctx, s, to, disk)
			if err != nil {
				return err
			}
			if clean {
				if err := e.look.MayLeave(ctx, s, to, true); err != nil {
					return err
				}
				return e.blockjob.FlushInPause(ctx, r, s, to, disk)
			}
			if e.stopping.Err() != nil { // the guest must not wait paused for the job
				return &move.WorldChangedError{What: "the daemon was stopped while the job of a switch was waited for"}
			}
			// Without writes this ends unless the written image is stuck.
			waited := e.now().Sub(began)
			if waited > move.DrainBound {
				return e.givesUpPause(ctx, s, to)
			}
			if err := retry.Sleep(ctx, drainPollFor(waited)); err != nil {
				return err
			}
		}
	}
	return move.Step(DrainStep, do, nil, nil)
}

// DrainStep is the name of StepDrain.
const DrainStep = "drain"

// givesUpPause ends a pause when the job takes too long. A mirror stays ready and is tried again
// in another pause.
func (e *Env) givesUpPause(ctx context.Context, s *move.Spec, to move.Direction) error {
	if to.End == move.OnDst {
		if err := e.look.LeaveSilentDstInPause(ctx, s); err != nil {
			return err
		}
	}
	refused := fmt.Sprintf("the copy into %s did not get clean in %s with the guest paused", to.Image(s).Path, move.DrainBound)
	switch {
	case s.Method == move.MethodMirror:
		return &move.WorldChangedError{What: refused}
	case to.End == move.OnSrc:
		return api.Errorf(api.CodeInternal, "%s, and instance %s goes on with its overlay, since it writes as fast as the commit gets on: have it write less, or take off the limits of its disk that keep Volferry from setting one (`%s`), and cancel again; with the instance shut off a cancel needs no pause",
			refused, s.InstanceName, shell.Line("virsh", "blkdeviotune", "--", s.InstanceName, s.Target))
	}
	return api.Errorf(api.CodeInternal, "%s", refused)
}

func drainPollFor(waited time.Duration) time.Duration {
	return max(move.DrainPoll, min(waited/10, move.JobPoll))
}

// Drained reports whether the guest is paused and the block job has copied everything.
func (e *Env) Drained(ctx context.Context, s *move.Spec, to move.Direction, disk *move.DiskState) (bool, error) {
	if !disk.Active {
		return false, look.GuestIsOff(s)
	}
	mirror, err := disk.MirrorTo(to, s)
	if err != nil {
		return false, err
	}
	if mirror == nil {
		return false, look.JobEndedEarly(s, to.Image(s))
	}
	if disk.Dom.State == hv.StateRunning {
		// A person resumed the guest, or its process is another. The pause note must be written
		// again.
		return false, &move.WorldChangedError{What: fmt.Sprintf("instance %s was resumed by somebody while its disk was being switched", s.InstanceName)}
	}
	if disk.Dom.State != hv.StatePaused || !mirror.Ready {
		return false, nil
	}
	job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.look.GuestError(ctx, s, err)
	}
	return job != nil && job.Current == job.End, nil
}

// endPauseOnDisagreement resumes the op's paused guest if err reports that libvirt and the kernel
// disagree: nothing is undone, but the guest must not wait for a person. It returns other errors
// unchanged.
//
// Both chains are equal in the pause, so the definition is first changed to the process's chain.
// If dst is open, that chain may be unknown, and the definition is not changed. If the definition
// then names dst, it is right, since the job writes to both images until its pivot, and the guest
// to dst alone after it. A commit, and a background copy, write to one image only, so neither name
// would be right once the guest writes. Such a guest stays paused.
func (e *Env) endPauseOnDisagreement(ctx context.Context, r *op.Run, s *move.Spec, w move.PauseWindow, err error) error {
	var disagreed *look.WitnessesDisagreeError
	if !errors.As(err, &disagreed) || disagreed.OneSided && w == move.ToSwitch {
		return err
	}
	chains := map[move.Position][]hv.Image{move.OnSrc: s.SrcChain(), move.OnDst: s.DstChain()}
	if s.Overlay != "" {
		chains[move.OnOverlay] = s.OverlayChain()
	}
	if _, ours := chains[disagreed.Config]; ours && disagreed.At != move.Foreign && disagreed.At != disagreed.Config {
		if nameErr := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, chains[disagreed.At]); nameErr != nil {
			return e.move.HVError(nameErr)
		}
	}
	if resumeErr := e.resume(ctx, r, s, w); resumeErr != nil {
		return resumeErr
	}
	return err
}

// ConfirmDiskInPause is ConfirmDiskOfPaused for the pause of a switch. It also detects a commit
// that libvirt no longer knows, and that QEMU may have pivoted.
func (e *Env) ConfirmDiskInPause(ctx context.Context, r *op.Run, s *move.Spec) (*move.DiskState, error) {
	disk, err := e.look.ConfirmDiskOfPaused(ctx, s)
	if err == nil && look.MaybeUnderCommit(disk) {
		err = e.commitIsOver(ctx, s)
	}
	if err != nil {
		return nil, e.endPauseOnDisagreement(ctx, r, s, move.ToSwitch, err)
	}
	return disk, nil
}

// commitIsOver waits until QEMU has reopened src for reading only, which takes a moment after a
// failed commit. If QEMU does not, it returns an error: the guest may be on src.
func (e *Env) commitIsOver(ctx context.Context, s *move.Spec) error {
	var unknown error
	if _, err := retry.Poll(ctx, look.Agreement.Poll, look.Agreement.Bound, func() (bool, error) {
		unknown = e.look.UnknownCommit(ctx, s)
		return unknown == nil, nil
	}); err != nil {
		return err
	}
	return unknown
}
