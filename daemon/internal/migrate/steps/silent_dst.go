// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// A dst whose server answers nobody any more. A write of the guest waits for dst as long as a job
// writes to both, a suspension of the guest waits for all writes, and the beginning of a job for the server, QEMU
// standing still with all else that it does. So dst is asked before each of them, and while a
// job makes no progress; and where it does not answer the connections to it are ended, of which the
// job fails, and the guest goes on with what it has (DESIGN.md, section 16). That can be
// done to an NBD server alone: QEMU waits for a file, a device or a cluster until that answers.

const (
	// silentAfter is how long a job into dst may make no progress until dst is asked.
	silentAfter = 5 * time.Second
	// silentBound is how long dst is asked again while a job writes there and its guest runs. Storage that fails over is
	// back by then.
	silentBound = 2 * time.Minute
	// pauseAnswer is how long dst may take to answer with the guest paused, behind DrainBound.
	pauseAnswer = 3 * time.Second
	// leaveBound is how long a job may take to end by the end of its connections.
	leaveBound = 5 * time.Second
	leavePoll  = 20 * time.Millisecond
)

// dstAnswers returns an error if dst does not answer. Where a job of ours writes there it waits for dst as long as silentBound,
// and as long as it takes where the guest's QEMU would die of the end of the job; the job has ended when it
// returns an error.
func (e *Env) dstAnswers(ctx context.Context, s *Spec) error {
	for began := e.now(); ; {
		silent := e.askDst(ctx, s)
		if silent == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if !disk.active || disk.ours(toDst, s) == nil {
			return dstIsSilent(s, silent)
		}
		version, err := e.hv.QEMUVersion(ctx, s.InstanceID)
		if err != nil {
			return e.guestError(ctx, s, err)
		}
		if e.now().Sub(began) >= silentBound && !hv.JobEndKillsGuest(version) {
			return cmp.Or(e.leaveDst(ctx, s), dstIsSilent(s, silent))
		}
		e.progress.set(s.MigrationID, Progress{Phase: jobPhase(s), Pacing: "the guest waits for " + s.Dst.Path + ", which does not answer: mend the server, or cancel the migration"})
		if err := retry.Sleep(ctx, silentAfter); err != nil {
			return err
		}
	}
}

// dstAnswersInPause is dstAnswers for a guest that stands still meanwhile: there is no write of which QEMU could die,
// and no time.
func (e *Env) dstAnswersInPause(ctx context.Context, s *Spec) error {
	asking, cancel := context.WithTimeout(ctx, pauseAnswer)
	defer cancel()
	silent := e.askDst(asking, s)
	if silent == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cmp.Or(e.leaveDst(ctx, s), dstIsSilent(s, silent))
}

// leaveSilentDst has our job into dst, if there is one, end at once if dst does not answer: somebody has said so by a
// cancel. Of a guest that dies of it what it has flushed is in the overlay, as after any crash.
func (e *Env) leaveSilentDst(ctx context.Context, s *Spec) error {
	disk, err := e.readDisk(ctx, s)
	if err != nil || disk.ours(toDst, s) == nil || e.askDst(ctx, s) == nil {
		return err
	}
	return e.leaveDst(ctx, s)
}

// askDst returns an error if dst is an NBD export, and does not answer.
func (e *Env) askDst(ctx context.Context, s *Spec) error {
	if !api.IsNBD(s.Dst.Path) {
		return nil
	}
	return e.images.Answers(ctx, s.Dst.Path)
}

func dstIsSilent(s *Spec, silent error) error {
	return api.Errorf(api.CodeIOError, "%v. The guest of instance %s does not wait for it any more: mend the server and complete again, or take the move back", silent, s.InstanceName)
}

// leaveDst ends the connections of the guest's process to dst, and returns when our job is gone, which ends with
// an error by that. A guest that is on dst keeps its connections.
func (e *Env) leaveDst(ctx context.Context, s *Spec) error {
	disk, err := e.readDisk(ctx, s)
	if err != nil || !disk.active || disk.ours(toDst, s) == nil || disk.live == OnDst {
		return err
	}
	e.log.Warn("the server of dst does not answer, and a guest would wait for it: its connections are ended", "migration", s.MigrationID, "instance", s.InstanceName, "dst", s.Dst.Path)
	if err := e.hv.EndConnections(ctx, s.InstanceID, s.Dst.Path); err != nil {
		return e.guestError(ctx, s, err)
	}
	gone, err := retry.Poll(ctx, leavePoll, leaveBound, func() (bool, error) {
		disk, err := e.readDisk(ctx, s)
		return err == nil && (!disk.active || disk.ours(toDst, s) == nil), err
	})
	if err != nil || gone {
		return err
	}
	return api.Errorf(api.CodeIOError, "%s does not answer, and QEMU does not end its connection in the middle of a request to a Unix socket, so the guest of instance %s waits for it: end the process of that server, which is on this host, and the guest goes on where it was",
		s.Dst.Path, s.InstanceName)
}
