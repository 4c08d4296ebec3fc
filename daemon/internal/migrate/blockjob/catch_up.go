// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"
	"errors"
	"math"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/retry"
)

// CatchUpToAbort waits until a background job into dst can be ended quickly: if the job was ready,
// QEMU copies the rest first, with the guest paused. If the job does not catch up, the guest's
// writes are limited until the job has ended. If that does not suffice, the cancel is refused.
func (e *Env) CatchUpToAbort(ctx context.Context, s *move.Spec) error {
	if !s.Background() {
		return nil
	}
	caughtUp, err := e.catchesUp(ctx, s, move.Pacing{})
	if err != nil || caughtUp {
		return err
	}
	if err := e.limitForCommit(ctx, s, ThrottleBytesPerSecond); err != nil {
		return err
	}
	caughtUp, err = e.catchesUp(ctx, s, asFastAsItCan.pacing())
	if err == nil && !caughtUp {
		err = api.Errorf(api.CodeInternal, "the copy into %s does not catch up with instance %s, though that may write no more than %s per second, and to end the copy now would pause it for as long as the rest takes: dst, or where the overlay is, is too slow; call again, or shut the instance down, by which the copy ends",
			s.Dst.Path, s.InstanceName, humanize.Bytes(ThrottleBytesPerSecond))
	}
	if err != nil {
		err = errors.Join(err, e.EndCatchUp(ctx, s))
	}
	return err
}

// EndCatchUp removes the limit of CatchUpToAbort on the guest's writes.
func (e *Env) EndCatchUp(ctx context.Context, s *move.Spec) error {
	if !s.Background() {
		return nil
	}
	return e.limitForCommit(ctx, s, 0)
}

// catchesUp waits until the migration's job into dst has caught up, is gone, or was never ready
// and so can be ended at once. It returns false if the job made no progress for CommitBound.
func (e *Env) catchesUp(ctx context.Context, s *move.Spec, pacing move.Pacing) (bool, error) {
	least, since, pace := int64(math.MaxInt64), e.now(), meter{}
	_, _, fenced := e.fence.Behind(s)
	for {
		select {
		case <-fenced: // a fence waits for the end of a pause
			return false, &move.WorldChangedError{What: "the host was fenced while the job on a disk was waited for"}
		default:
		}
		if err := e.move.MayPause(); err != nil { // a daemon that stops waits for it, too
			return false, err
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return false, err
		}
		mirror := disk.Ours(move.ToDst, s)
		if mirror == nil || !mirror.Ready {
			return true, nil
		}
		if ready, err := e.caughtUp(ctx, s, move.ToDst, mirror); err != nil || ready {
			return ready, err
		}
		if job := e.reportJob(ctx, s, &pace, pacing); job != nil && job.End-job.Current < least {
			least, since = job.End-job.Current, e.now()
		}
		if e.now().Sub(since) >= move.CommitBound {
			return false, nil
		}
		if err := retry.Sleep(ctx, move.JobPoll); err != nil {
			return false, err
		}
	}
}
