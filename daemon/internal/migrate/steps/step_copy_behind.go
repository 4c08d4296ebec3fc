// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepCopyBehind is stepMirror with a background job. A guest that writes faster than the job is
// limited until the switch is over, as in stepCommit. If that does not suffice, the step is
// refused: the rest would have to be copied in the pause.
func (e *Env) stepCopyBehind() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.mayMirrorToDst(ctx, s); err != nil {
			return err
		}
		ready, err := e.runJob(ctx, r, s, toDst, CommitBound, givesWay)
		if err != nil || ready {
			return err
		}
		if err := e.limitForCommit(ctx, s, ThrottleBytesPerSecond); err != nil {
			return err
		}
		ready, err = e.runJob(ctx, r, s, toDst, CommitBound, asFastAsItCan)
		if err == nil && !ready {
			err = api.Errorf(api.CodeInternal, "the copy into %s does not catch up with instance %s, though that may write no more than %s per second: dst, or where the overlay is, is too slow; call again, or cancel",
				s.Dst.Path, s.InstanceName, api.Bytes(ThrottleBytesPerSecond))
		}
		return err
	}
	undo := func(ctx context.Context, _ *op.Run, s *Spec) error { return e.limitForCommit(ctx, s, 0) }
	return jobProvided(step(mirrorStep, do, undo, e.observeJob(toDst)), e.srcUnchanged, e.dstUnchanged, e.jobIsWhole)
}
