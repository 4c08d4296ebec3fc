// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// ToBegin is the pause while a block job begins (look.MustHold).
var ToBegin = move.PauseWindow{Begin: "pause_to_begin", End: "resume_after_begin"}

// These steps begin a job with the guest suspended.
const (
	MayBeginStep = "may_begin"
	BeginStep    = "begin_job"
)

// HoldBound is how long a guest may be suspended for the beginning of a job. Then the job is ended
// and the guest continues.
const HoldBound = 5 * time.Second

// HeldSteps begin the block job of a direction with the guest suspended. They do nothing while a
// job that an earlier op began in this way still runs.
func (e *Env) HeldSteps(to move.Direction) []op.Step {
	return []op.Step{
		seal.Provided(e.stepMayBegin(to), e.seal.SrcUnchanged, e.seal.EndUnchanged(to)),
		unlessAtWork(e.stepPause(ToBegin)),
		unlessAtWork(e.stepBegin(to)),
		e.StepResume(ToBegin),
	}
}

type mayBeginOutput struct {
	AtWork bool `json:"at_work"`
}

// stepMayBegin finds obstacles to the block job before the guest is suspended.
func (e *Env) stepMayBegin(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.look.ReadActive(ctx, s)
		if err != nil {
			return err
		}
		mirror, err := disk.MirrorTo(to, s)
		if err != nil {
			return err
		}
		lost := false
		if to.End == move.OnDst {
			if lost, err = e.history.EndNotStored(ctx, s); err != nil {
				return err
			}
		}
		if lost {
			e.blockjob.HearOfLostWrites(ctx, s)
		}
		if mirror != nil {
			held, err := e.look.BegunHeld(ctx, s)
			if err != nil {
				return err
			}
			if to.End == move.OnSrc && !held {
				// A commit that another program began is adopted (SealedUnlessCommitted). Writes
				// that it has missed cannot be found.
				e.log.Warn("a commit is taken up that was not begun with its guest suspended, as it has to be with this QEMU", "migration", s.MigrationID, "instance", s.InstanceName)
				held = true
			}
			return r.SetOutput(mayBeginOutput{AtWork: held && !lost})
		}
		if err := e.blockjob.AwaitBackup(ctx, s); err != nil {
			return err
		}
		if disk, err = e.look.ConfirmDisk(ctx, s); err != nil {
			return err
		}
		if err := blockjob.MayBegin(disk, s); err != nil {
			return err
		}
		if err := look.MayName(disk, s, to); err != nil {
			return err
		}
		if to.End == move.OnSrc {
			return e.seal.SealedUnlessCommitted(ctx, s, disk, r.OpID())
		}
		if s.Method == move.MethodMirror {
			if err := e.transfer.CheckSizes(ctx, s); err != nil {
				return err
			}
		}
		return e.seal.MayMirrorToDst(ctx, s)
	}
	return move.Step(MayBeginStep, do, nil, nil)
}

func unlessAtWork(st op.Step) op.Step {
	do, undo, observe := st.Do, st.Undo, st.Observe
	idle := func(r *op.Run) (bool, error) {
		var out mayBeginOutput
		_, err := r.Output(MayBeginStep, &out)
		return out.AtWork, err
	}
	st.Do = func(ctx context.Context, r *op.Run) error {
		if none, err := idle(r); none || err != nil {
			return err
		}
		return do(ctx, r)
	}
	st.Undo = func(ctx context.Context, r *op.Run) error {
		if none, err := idle(r); none || err != nil {
			return err
		}
		return undo(ctx, r)
	}
	if observe != nil {
		st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
			if none, err := idle(r); none || err != nil {
				return op.DoneIf(none), err
			}
			return observe(ctx, r)
		}
	}
	return st
}

// BegunOutput has the block job that began with the guest suspended, and the guest's process,
// empty if unknown.
type BegunOutput struct {
	Job     hv.JobKind `json:"job"`
	Process string     `json:"process"`
}

// stepBegin begins the job of the suspended guest, and waits until it tracks all writes. It has no
// Observe: after a crash it is unknown whether the guest was suspended all the time, so the step
// ends the job and begins it again.
func (e *Env) stepBegin(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.held(ctx, s)
		if err != nil {
			return err
		}
		if mirror, err := disk.MirrorTo(to, s); err != nil {
			return err
		} else if mirror != nil {
			if err := e.endsWithSilentDst(ctx, s, to); err != nil {
				return err
			}
			if err := e.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
				return e.move.HVError(err)
			}
			return move.NotEnded(s)
		}
		if _, behind, _ := e.fence.Behind(s); behind {
			return &move.WorldChangedError{What: "this host was fenced"} // in a pause the registry is not asked
		}
		if err := blockjob.MayBegin(disk, s); err != nil {
			return err
		}
		// From here a commit writes src: no later cancel may compare src.
		note := move.BegunNote{FoldingNote: move.FoldingNote{Folding: to.End == move.OnSrc}, WritesNote: move.WritesNote{Writes: to.End == move.OnDst}}
		began := e.now()
		if err := e.blockjob.BeginNoted(ctx, r, s, to, note); err != nil {
			if e.blockjob.BackupAtWork(ctx, s) { // the op waits for it with the guest running
				return &move.WorldChangedError{What: fmt.Sprintf("a backup of disk %s of instance %s has begun", s.Target, s.InstanceName)}
			}
			return e.look.GuestError(ctx, s, err)
		}
		if err := e.awaitTracking(ctx, s, to, disk.Dom.Run); err != nil {
			return err
		}
		e.log.Info("a block job has begun with its guest suspended, since its QEMU may lose a write, or die of it, otherwise", "migration", s.MigrationID, "instance", s.InstanceName,
			"target", s.Target, "ms", e.now().Sub(began).Milliseconds())
		process, err := e.hv.Process(ctx, s.InstanceID, s.Target)
		if err != nil {
			e.log.Warn("the process of a guest was not found", "instance", s.InstanceName, "err", err)
		}
		return r.SetOutput(BegunOutput{to.Job, process.ID})
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var out BegunOutput
		if begun, err := r.Output(BeginStep, &out); err != nil || begun && to.End != move.OnSrc {
			return err // the next op continues the job, or ends it
		}
		var note move.FoldingNote
		if noted, err := r.Noted(BeginStep, &note); err != nil || !noted {
			return err // nothing was begun
		}
		return e.endBegun(ctx, s, to)
	}
	return move.Step(BeginStep, do, undo, nil)
}

func (e *Env) held(ctx context.Context, s *move.Spec) (*move.DiskState, error) {
	disk, err := e.look.ReadActive(ctx, s)
	switch {
	case err != nil:
		return nil, err
	case disk.Dom.State == hv.StateRunning:
		return nil, &move.WorldChangedError{What: fmt.Sprintf("instance %s was resumed by somebody while a block job began on its disk", s.InstanceName)}
	}
	return disk, nil
}

func (e *Env) awaitTracking(ctx context.Context, s *move.Spec, to move.Direction, run int) error {
	began := e.now()
	for {
		job, err := e.hv.Job(ctx, s.InstanceID, s.Target)
		if err != nil {
			return e.look.GuestError(ctx, s, err)
		}
		// After the job, so that the guest was suspended when the job tracked.
		disk, err := e.held(ctx, s)
		if err != nil {
			return err
		}
		mirror, err := disk.MirrorTo(to, s)
		switch {
		case err != nil:
			return err
		case disk.Dom.Run != run:
			return look.GuestRestarted(s)
		case mirror == nil:
			return e.look.JobFailed(ctx, s, to.Image(s), run)
		case job != nil && job.Tracking, mirror.Ready:
			return nil
		}
		waited := e.now().Sub(began)
		if waited > HoldBound {
			return e.holdTookLong(ctx, s)
		}
		if err := retry.Sleep(ctx, drainPollFor(waited)); err != nil {
			return err
		}
	}
}

func (e *Env) holdTookLong(ctx context.Context, s *move.Spec) error {
	if must, err := e.look.MustHold(ctx, s); err == nil && !must {
		return api.Errorf(api.CodeInternal, "%s may lack what a block job has written to it, so another one was to begin, with the guest of instance %s suspended; it took longer than %s, and the guest goes on as before; call again, or stop the instance and call again",
			s.Dst.Path, s.InstanceName, HoldBound)
	}
	return api.Errorf(api.CodeInternal, "the QEMU of instance %s may lose a write, or die of it, while a block job begins, so its guest was suspended for that; it took longer than %s, and the guest goes on as before; stop the instance and call again, or upgrade QEMU",
		s.InstanceName, HoldBound)
}

// endBegun ends a block job that may have missed a write, or that no op continues. A guest that
// another program has resumed is first suspended, since the end of a synchronous job may kill its
// process. If the daemon dies meanwhile, the undo of the pause resumes the guest, unless a person
// had paused it before.
func (e *Env) endBegun(ctx context.Context, s *move.Spec, to move.Direction) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || !disk.Active || disk.Ours(to, s) == nil {
		return err // a job ends with its process
	}
	again := to.Job == hv.JobCopy && disk.Dom.State == hv.StateRunning
	if again {
		if err := e.look.GuestError(ctx, s, e.hv.Suspend(ctx, s.InstanceID)); err != nil {
			return err
		}
	}
	if err := e.endsWithSilentDst(ctx, s, to); err != nil {
		return err
	}
	e.log.Info("ending a block job that has just begun", "migration", s.MigrationID, "instance", s.InstanceName)
	if err := e.hv.AbortJob(ctx, s.InstanceID, s.Target); err != nil {
		return e.move.HVError(err)
	}
	gone, err := retry.Poll(ctx, move.DrainPoll, HoldBound, func() (bool, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		return err == nil && disk.Ours(to, s) == nil, err
	})
	switch {
	case err != nil:
		return err
	case !gone:
		return move.NotEnded(s)
	case again:
		return e.resumeNow(ctx, s)
	}
	return nil
}

// endsWithSilentDst ends the connections of a job into a dst that does not answer, since an abort
// would wait for dst. The guest is suspended.
func (e *Env) endsWithSilentDst(ctx context.Context, s *move.Spec, to move.Direction) error {
	if to.End != move.OnDst {
		return nil
	}
	if err := e.look.LeaveSilentDstInPause(ctx, s); api.CodeOf(err) != api.CodeIOError {
		return err
	}
	return nil
}
