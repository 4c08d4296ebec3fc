// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
)

// checkAttachBesideMoves refuses an attach to a running guest if its failure would make the cancel
// of a migration of another disk impossible: libvirt before 12.1.0 writes the guest's AppArmor
// rules again when it cannot plug the disk, and when the undo has unplugged the disk.
func (e *env) checkAttachBesideMoves(ctx context.Context, in *input) error {
	return e.checkBesideMoves(ctx, in, "cannot attach volume "+in.VolumeName, "a failure of the attach would prevent a cancel of the migration")
}

// checkDetachBesideMoves refuses the detach of a live disk that would make the cancel of a
// migration of another disk impossible.
func (e *env) checkDetachBesideMoves(ctx context.Context, in *input, v *view) error {
	if v.live != attached {
		return nil
	}
	return e.checkBesideMoves(ctx, in, in.cannotDetach(), "the detach would prevent a cancel of the migration")
}

func (e *env) checkBesideMoves(ctx context.Context, in *input, cannot, prevents string) error {
	alone := request.OneMoveAtATime{Migrations: e.Migrations, Processes: e.Processes}
	return alone.Check(ctx, request.DiskChange{
		InstanceID: in.InstanceID, InstanceName: in.InstanceName, Cannot: cannot, Prevents: prevents,
	})
}
