// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepSettle makes sure, with the guest running again, that no definition names the chain before
// the switch, and that the guest's process has closed it.
func (e *Env) stepSettle(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		e.progress.clear(s.MigrationID)
		if err := e.liftThrottle(ctx, r, s); err != nil {
			return err
		}
		left, err := e.endWriteLimits(ctx, s)
		if err != nil {
			return err
		}
		if left != "" {
			if err := r.SetOutput(remarkOutput{left}); err != nil {
				return err
			}
		}
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return err
		}
		// Any other chain may have newer writes.
		if (disk.config != to.end && disk.config != s.Before()) || (disk.active && disk.live != to.end) {
			return op.UnknownOutcome(chainChanged(s, disk))
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)); err != nil {
			return e.hvError(err)
		}
		if err := e.endHasItsName(ctx, s, to); err != nil {
			return err
		}
		if err := e.endIsStored(ctx, r, s, to, disk); err != nil {
			return err
		}
		if to.end == OnDst {
			if disk.active {
				if err := e.assertClosed(ctx, s, s.Src.Path); err != nil {
					return err
				}
			}
			e.giveBackSrcRights(ctx, s) // no definition names src any more
		}
		if !disk.active || s.Overlay == "" {
			return nil
		}
		return e.assertClosed(ctx, s, s.Overlay)
	}
	return step(settleStep, do, nil, nil)
}

// assertClosed waits until the guest's process has closed an image.
func (e *Env) assertClosed(ctx context.Context, s *Spec, path string) error {
	files, err := e.openFiles(ctx, s, path)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return op.Retry(frozenRetry, api.Errorf(api.CodeInstanceBusy, "instance %s still has %s open", s.InstanceName, path))
	}
	return nil
}
