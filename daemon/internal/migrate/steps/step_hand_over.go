// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepHandOver ends the migration if the guest is off, or runs on a src that still belongs to the
// instance. If the guest runs on another image, only a person can decide whether it may.
func (e *Env) stepHandOver() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if !disk.active {
			_, err := e.endWriteLimits(ctx, s)
			return err
		}
		if disk.live == OnSrc && disk.config == OnSrc {
			if kept, err := e.keptSrc(ctx, s, api.MigrationCancelled); err != nil {
				return err
			} else if kept {
				left, err := e.endWriteLimits(ctx, s)
				if err != nil || left == "" {
					return err
				}
				return r.SetOutput(remarkOutput{left})
			}
		}
		shutdown := api.ShellLine("virsh", "shutdown", "--", s.InstanceName)
		var in Input
		if err := r.Input(&in); err != nil {
			return err
		}
		why := *in.Why
		why.Message += fmt.Sprintf("; instance %s still runs on %s: shut it down (`%s`), and call cancel again, which ends the migration here", s.InstanceName, s.place(disk.live), shutdown)
		return op.UnknownOutcome(cured(&why, shutdown))
	}
	return step("hand_over", do, nil, nil)
}
