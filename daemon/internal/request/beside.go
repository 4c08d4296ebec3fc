// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// OneMoveAtATime finds the migrations of guests that libvirt confines by rules with a fault: a
// change of the guest's disks makes the cancel of each of its open migrations impossible.
type OneMoveAtATime struct {
	// Migrations lists this host's migrations as migrate.Manager does.
	Migrations interface {
		List(ctx context.Context, all bool) ([]api.Migration, error)
	}
	Processes Rules
}

// Rules reports which rules libvirt makes for a guest's process (hv.Processes).
type Rules interface {
	DeniesBelow(ctx context.Context, id string) (bool, error)
}

// DiskChange is an action on a disk of a guest. Cannot begins its refusal, and Prevents says what
// would make a cancel impossible.
type DiskChange struct {
	InstanceID, InstanceName, Cannot, Prevents string
	// Overlaid: the action is a migration, and the end of another one would prevent its cancel.
	Overlaid bool
}

// overlaid reports whether the cancel of a migration writes to an image below an overlay.
func overlaid(m *api.Migration) bool {
	return m.Method == api.MethodOverlay && medium.Of(m.Src.Path).Path
}

// Check refuses an action that would make the cancel of an open migration of the instance
// impossible. An unknown confinement refuses nothing.
func (o OneMoveAtATime) Check(ctx context.Context, c DiskChange) error {
	open, err := o.Migrations.List(ctx, false)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(open, func(m api.Migration) bool {
		return m.InstanceID == c.InstanceID && (c.Overlaid || overlaid(&m))
	})
	if i < 0 {
		return nil
	}
	if denies, err := DeniesBelow(ctx, o.Processes, c.InstanceID); err != nil || !denies {
		return err
	}
	m := &open[i]
	return api.Errorf(api.CodeInstanceBusy,
		"%s: AppArmor confines instance %s, and migration %s moves its volume %s; with libvirt before 12.1.0 %s; try again after the migration has ended: `%s`",
		c.Cannot, c.InstanceName, m.ID, m.VolumeName, c.Prevents, shell.Line("volferryctl", "migration", "watch", m.ID)).With("migration_id", m.ID)
}

// DeniesBelow reports whether a change of an instance's disks may deny writes below its overlays
// (hv.Processes.DeniesBelow). If that is unknown it returns false, because no data is at risk: a
// denied cancel is refused, and the move can be completed. An error is typed for the runner.
func DeniesBelow(ctx context.Context, of Rules, instanceID string) (bool, error) {
	denies, err := of.DeniesBelow(ctx, instanceID)
	if errors.Is(err, hv.ErrUnavailable) {
		return false, AwaitHypervisor(err)
	}
	return err == nil && denies, nil
}
