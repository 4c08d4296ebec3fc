// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// StepCopyBehind is StepMirror with a background job. If the guest writes faster than the job, the
// step limits the guest's writes until the switch is over. If that does not suffice, it returns an
// error: the rest would have to be copied with the guest paused.
func (e *Env) StepCopyBehind() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.seal.MayMirrorToDst(ctx, s); err != nil {
			return err
		}
		ready, err := e.runJob(ctx, r, s, move.ToDst, move.CommitBound, givesWay)
		if err != nil || ready {
			return err
		}
		if err := e.limitForCommit(ctx, s, ThrottleBytesPerSecond); err != nil {
			return err
		}
		ready, err = e.runJob(ctx, r, s, move.ToDst, move.CommitBound, asFastAsItCan)
		if err == nil && !ready {
			err = api.Errorf(api.CodeInternal, "the copy into %s does not catch up with instance %s, though that may write no more than %s per second: dst, or where the overlay is, is too slow; call again, or cancel",
				s.Dst.Path, s.InstanceName, humanize.Bytes(ThrottleBytesPerSecond))
		}
		return err
	}
	undo := func(ctx context.Context, _ *op.Run, s *move.Spec) error { return e.limitForCommit(ctx, s, 0) }
	return seal.JobProvided(move.Step(CopyBehindStep, do, undo, e.observeJob(move.ToDst)), e.seal.SrcUnchanged, e.seal.DstUnchanged, e.jobIsWhole)
}
