// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

const admitStep = "admit"

type admittedOutput struct {
	Admitted bool   `json:"admitted"`
	Remark   string `json:"remark,omitempty"`
}

func (e *Env) stepAdmitCancel() op.Step {
	return e.stepAdmit(admitStep, e.mayBringBack, func(*move.Spec) string { return "" })
}

// stepAdmit returns the first step of a cancel. It begins when no other op of the instance runs,
// since an earlier complete op may be past its commit point. check refuses a cancel that cannot
// succeed, before any change. A cancel makes the copy worthless, since it writes src, so the next
// copy starts over.
func (e *Env) stepAdmit(name string, check func(ctx context.Context, s *move.Spec, opID string) error, remark func(*move.Spec) string) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		yes, err := e.history.Completed(ctx, s)
		if err != nil {
			return err
		}
		if yes {
			return PastPointOfNoReturn(s)
		}
		if err := check(ctx, s, r.OpID()); err != nil {
			return err
		}
		if err := e.copier.Restart(s.CopyKey()); err != nil {
			return err
		}
		return r.SetOutput(admittedOutput{Admitted: true, Remark: remark(s)})
	}
	return move.Step(name, do, nil, nil)
}

// mayBringBack refuses a cancel that cannot succeed: the disk has left the overlay, src was
// written, src's path has another image, or the guest may not write to src. It admits a cancel
// that has begun to write src, which must continue.
func (e *Env) mayBringBack(ctx context.Context, s *move.Spec, opID string) error {
	if s.Method != move.MethodOverlay {
		return nil
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil || p.Folding {
		return err
	}
	// This check is first: a guest that has the old src open would count as not having src open.
	if err := e.Seal.SrcUnchanged(ctx, s); err != nil {
		return err
	}
	disk, err := e.Look.ConfirmDisk(ctx, s)
	if err != nil {
		return err
	}
	if disk.Active && disk.Live != move.OnOverlay || !disk.Active && disk.Config != move.OnOverlay {
		return look.ChainChanged(s, disk)
	}
	if err := e.Look.MayBringBack(ctx, s); err != nil {
		return e.Move.HVError(err)
	}
	return e.Seal.SealedUnlessCommitted(ctx, s, disk, opID)
}

// PastPointOfNoReturn returns the refusal of a cancel after the commit point of a complete op.
func PastPointOfNoReturn(s *move.Spec) *api.Error {
	return api.Errorf(api.CodePastPointOfNoReturn,
		"cannot cancel migration %s of volume %s: it is completed, the volume is at %s", s.MigrationID, s.VolumeName, s.Dst.Path)
}
