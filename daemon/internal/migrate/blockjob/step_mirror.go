// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// StepMirror makes dst equal to the disk of the running guest. QEMU writes the guest's writes to
// both synchronously, so the job converges under any load. Method overlay folds the overlay into a
// dst that equals src, by a shallow copy; method mirror copies everything. The step ends when the
// job is ready.
//
// The step has no undo: the next try adopts the job, or a cancel ends it with the guest paused
// (AbortSteps).
func (e *Env) StepMirror() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if s.Method == move.MethodMirror {
			if err := e.mayMirror(ctx, s); err != nil {
				return err
			}
			if err := e.place.Allocate(ctx, s); err != nil {
				return err
			}
		}
		if err := e.seal.MayMirrorToDst(ctx, s); err != nil {
			return err
		}
		_, err := e.runJob(ctx, r, s, move.ToDst, 0, givesWay)
		if err == nil {
			err = e.place.Allocate(ctx, s)
		}
		return err
	}
	return seal.JobProvided(move.Step(MirrorStep, do, nil, e.observeJob(move.ToDst)), e.seal.SrcUnchanged, e.seal.DstUnchanged, e.jobIsWhole)
}

// The steps that begin a job into dst.
const (
	MirrorStep     = "mirror"
	CopyBehindStep = "copy_in_background"
)

// OffBound is how long a mirror waits for a stopped guest to start again, and offPoll how often it
// looks. A restarted guest is mirrored from the beginning. The waiting mirror has no key that
// other ops of the instance need.
const (
	OffBound = time.Minute
	offPoll  = time.Second
)

func (e *Env) mayMirror(ctx context.Context, s *move.Spec) error {
	if err := e.transfer.CheckSizes(ctx, s); err != nil {
		return err
	}
	runs, err := retry.Poll(ctx, offPoll, OffBound, func() (bool, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		return err == nil && disk.Active, err
	})
	if err != nil || runs {
		return err
	}
	return api.Errorf(api.CodeStateForbidden, "instance %s was stopped while volume %s was mirrored, and has not been started for %s; migrate it again: the move is then made with the instance stopped",
		s.InstanceName, s.VolumeName, OffBound)
}

// StepReady refuses the switch unless the mirror is ready: the guest would be paused in vain.
func (e *Env) StepReady() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		e.progress.Clear(s.MigrationID)
		disk, err := e.look.ReadActive(ctx, s)
		if err != nil {
			return err
		}
		mirror, err := disk.MirrorTo(move.ToDst, s)
		if err != nil {
			return err
		}
		if mirror == nil || !mirror.Ready {
			return look.JobEndedEarly(s, s.DstImage())
		}
		if err := e.look.SrcNotInUse(ctx, s); err != nil {
			return err
		}
		if err := e.look.CheckBitmapsKept(ctx, s, true); err != nil {
			return err
		}
		return look.MayName(disk, s, move.ToDst)
	}
	return move.Step("ready", do, nil, nil)
}
