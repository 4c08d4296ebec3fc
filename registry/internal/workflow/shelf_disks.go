// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

func checkUnshelvable(i api.Instance) error {
	if err := store.CheckUnlocked("unshelve", i); err != nil {
		return err
	}
	if i.LacksRoot() {
		return api.Errorf(api.CodeRootVolumeMissing, "cannot unshelve instance %s without a root device volume; attach one with `%s`", i.Name, shell.Line("volferryctl", "volume", "attach", "VOLUME", i.Name, "--root")).
			With("device", i.RootSlot().Device)
	}
	return nil
}

// shelvedDisk is a volume of an instance without a host. ownerID is the host that store.Reaches
// compares with: another host with the volume attached, else the volume's own.
type shelvedDisk struct {
	volume, ownerID, scope string
	movedBy                string // its open migration, "" if there is none
	location               api.Location
}

func shelvedDisks(ctx context.Context, q ledger.Querier, instanceID string) ([]shelvedDisk, error) {
	scan := ledger.ScanInto(func(d *shelvedDisk) []any {
		return append([]any{&d.volume, &d.ownerID, &d.scope, &d.movedBy}, store.LocationFields(&d.location)...)
	})
	return ledger.QueryAll(ctx, q, scan, `SELECT v.name, COALESCE((
			SELECT oi.host_id FROM attachments oa JOIN instances oi ON oi.id = oa.instance_id
			WHERE oa.volume_id = v.id AND oi.id <> a.instance_id AND oi.state <> 'shelved_offloaded' LIMIT 1), v.host_id), l.scope, COALESCE(m.id, ''), `+store.LocationColumns+`
		FROM attachments a
		JOIN volumes v ON v.id = a.volume_id
		JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL
		LEFT JOIN migrations m ON m.volume_id = v.id AND `+store.MigrationOpen+`
		WHERE a.instance_id = ? ORDER BY a.device`, instanceID)
}

// checkDisksStill refuses to unshelve an instance while one of its volumes is in migration: the
// guest would write to src while it is copied.
func checkDisksStill(instance string, disks []shelvedDisk) error {
	for _, d := range disks {
		if d.movedBy != "" {
			return api.Errorf(api.CodeMigrationActive, "cannot unshelve instance %s: migration %s is moving its volume %s; wait for its end, or cancel it", instance, d.movedBy, d.volume).
				With("migration_id", d.movedBy)
		}
	}
	return nil
}

func unreached(ctx context.Context, q ledger.Querier, disks []shelvedDisk, hostID string) (*shelvedDisk, error) {
	for n, d := range disks {
		yes, err := store.Reaches(ctx, q, hostID, d.ownerID, d.scope, d.location)
		if err != nil {
			return nil, err
		}
		if !yes {
			return &disks[n], nil
		}
	}
	return nil, nil //nolint:nilnil // it reaches all
}

// checkVolumes refuses a host that does not reach every volume, and every host while a volume is in
// migration.
func (tx *changeTx) checkVolumes(ctx context.Context, i shelving, hostID string) error {
	disks, err := shelvedDisks(ctx, tx, i.ID)
	if err != nil {
		return err
	}
	if err := checkDisksStill(i.Name, disks); err != nil {
		return err
	}
	d, err := unreached(ctx, tx, disks, hostID)
	if err != nil {
		return err
	}
	if d != nil {
		return notReached(i.Name, "this host", *d)
	}
	for _, d := range disks {
		if err := tx.CheckNotBehind(ctx, "give this host", d.volume, d.location, hostID); err != nil {
			return err
		}
	}
	return nil
}

func notReached(instance, host string, d shelvedDisk) error {
	why := "is in no shared pool that it has"
	if d.location.Backing != "" {
		why = "and its base images are not all in shared pools that it has at the same path"
	}
	return api.Errorf(api.CodeUnsupportedDisk, "cannot unshelve instance %s on %s: %s of its volume %s %s", instance, host, store.Place(d.location), d.volume, why).
		With("volume", d.volume)
}

func (tx *changeTx) checkDisksAtRest(ctx context.Context, i shelving) error {
	type disk struct {
		volume, migration string
		state             api.AttachmentState
	}
	scan := ledger.ScanInto(func(d *disk) []any { return []any{&d.volume, &d.state, &d.migration} })
	disks, err := ledger.QueryAll(ctx, tx, scan, `SELECT v.name, a.state, COALESCE(m.id, '') FROM attachments a
		JOIN volumes v ON v.id = a.volume_id LEFT JOIN migrations m ON m.volume_id = v.id AND `+store.MigrationOpen+`
		WHERE a.instance_id = ? AND a.migration_id IS NULL ORDER BY v.name`, i.ID)
	if err != nil {
		return err
	}
	for _, d := range disks {
		switch {
		case d.migration != "":
			return api.Errorf(api.CodeMigrationActive, "cannot shelve instance %s: migration %s is moving its volume %s; complete or cancel that first", i.Name, d.migration, d.volume).
				With("migration_id", d.migration)
		case d.state != api.AttachmentAttached:
			return api.Errorf(api.CodeConflict, "cannot shelve instance %s: the attachment of its volume %s is %s", i.Name, d.volume, d.state).With("state", d.state)
		}
	}
	return nil
}
