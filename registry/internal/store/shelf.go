// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// shelf is what is stored beside the definition of an instance on the shelf.
type shelf struct {
	askedHostID string // for which an operator asked for it
	claimOp     string // that brings it back
	fromHostID  string // that had it before that op
}

// shelf returns the shelf of an instance, empty if it is not on it.
func (tx *Tx) shelf(ctx context.Context, instanceID string) (s shelf, err error) {
	err = tx.QueryRowContext(ctx, "SELECT asked_host_id, claim_op, from_host_id FROM shelves WHERE instance_id = ?", instanceID).
		Scan(&s.askedHostID, &s.claimOp, &s.fromHostID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("read shelf: %w", err)
	}
	return s, nil
}

func (tx *Tx) storeShelf(ctx context.Context, instanceID string, d api.InstanceDefinition) error {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode definition: %w", err)
	}
	return tx.Exec(ctx, `INSERT INTO shelves (instance_id, definition, created_us) VALUES (?1, ?2, ?3)
		ON CONFLICT (instance_id) DO UPDATE SET definition = ?2`, instanceID, string(b), tx.At.UnixMicro())
}

// storedDefinition is what an instance on the shelf is made of. Disks has all its
// slots: those that were empty when it was shelved as they were left then.
func (tx *Tx) storedDefinition(ctx context.Context, instanceID string) (*api.InstanceDefinition, error) {
	var text []byte
	if err := tx.QueryRowContext(ctx, "SELECT definition FROM shelves WHERE instance_id = ?", instanceID).Scan(&text); err != nil {
		return nil, fmt.Errorf("read shelf: %w", err)
	}
	d := new(api.InstanceDefinition)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("decode definition: %w", err)
	}
	type kept struct{ device, definition string }
	scan := func(row ledger.Scanner) (k kept, err error) {
		err = row.Scan(&k.device, &k.definition)
		return k, err
	}
	slots, err := ledger.QueryAll(ctx, tx, scan, "SELECT device, definition FROM slots WHERE instance_id = ? AND definition <> ''", instanceID)
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		if _, known := d.Disks[s.device]; known {
			continue
		}
		slot, err := decodeSlot(s.definition)
		if err != nil {
			return nil, err
		}
		if d.Disks == nil {
			d.Disks = map[string]api.SlotDefinition{}
		}
		d.Disks[s.device] = *slot
	}
	return d, nil
}

// shelvedInstance is the answer to a transition, with the definition if it is
// asked for.
func (tx *Tx) shelvedInstance(ctx context.Context, instanceID string, definition bool) (out api.ShelvedInstance, err error) {
	if out.Instance, err = InstanceByID(ctx, tx, instanceID); err != nil {
		return out, err
	}
	if out.Attachments, err = ledger.QueryAll(ctx, tx, scanAttachment, attachmentQuery+" WHERE a.instance_id = ?"+attachmentOrder, instanceID); err != nil {
		return out, err
	}
	if definition {
		out.Definition, err = tx.storedDefinition(ctx, instanceID)
	}
	return out, err
}

// claimInstance gives an instance that no host has to the one that asks: the one
// that had it last, or the one for which an operator asked.
func (tx *Tx) claimInstance(ctx context.Context, i shelving, in api.InstanceTransition) error {
	may := i.caller == i.hostID || i.caller == i.shelf.askedHostID || i.caller == i.shelf.fromHostID
	switch {
	case i.State != in.From && i.Host != "" && i.hostID != i.caller:
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: host %s has it, and it is %s", i.Name, i.Host, i.State).With("state", i.State).With("host", i.Host)
	case i.State != in.From:
		return i.conflict(in)
	case !may && i.shelf.askedHostID != "":
		asked, err := tx.hostRow(ctx, i.shelf.askedHostID)
		if err != nil {
			return err
		}
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: it was asked for on host %s since", i.Name, asked.Name).With("host", asked.Name)
	case !may:
		return api.Errorf(api.CodeNotYourHost, "cannot unshelve instance %s here: another host had it last, and no operator asked for it on this one", i.Name)
	}
	if err := cmp.Or(checkUnshelvable(i.Instance), tx.CheckNoSplitBrain("unshelve instance "+i.Name, i.ID, "")); err != nil {
		return err
	}
	if err := tx.checkVolumes(ctx, i); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE instances SET host_id = ? WHERE id = ?", i.caller, i.ID)
	if sqlitedb.Violates(err, "instances.host_id", "instances.name") {
		return api.Errorf(api.CodeConflict, "cannot unshelve instance %s here: the host has another instance of that name", i.Name)
	}
	if err != nil {
		return fmt.Errorf("store host of instance: %w", err)
	}
	if err := tx.Exec(ctx, "UPDATE shelves SET claim_op = ?, from_host_id = ? WHERE instance_id = ?", in.OpID, i.hostID, i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// undoClaim gives an instance back to the host that had it before the claim, or
// leaves it where it is if that host is forgotten, or has another one of its name.
func (tx *Tx) undoClaim(ctx context.Context, i shelving) error {
	return tx.ExecAll(ctx,
		ledger.SQL("UPDATE OR IGNORE instances SET host_id = COALESCE((SELECT id FROM hosts WHERE id = ?), host_id) WHERE id = ?", i.shelf.fromHostID, i.ID),
		ledger.SQL("UPDATE shelves SET claim_op = '', from_host_id = '' WHERE instance_id = ?", i.ID))
}

// checkUnshelvable refuses an instance that nobody may bring back as it is.
func checkUnshelvable(i api.Instance) error {
	if err := lockOf(i).check("unshelve", i.Name); err != nil {
		return err
	}
	if i.LacksRoot() {
		return api.Errorf(api.CodeRootVolumeMissing, "cannot unshelve instance %s without a root device volume; attach one with `volferryctl volume attach VOLUME %s --root`", i.Name, i.Name).
			With("device", i.RootSlot().Device)
	}
	return nil
}

// shelvedDisk is a volume of an instance that no host has, with the host whose
// place of it counts: one that has it attached elsewhere, else its own.
type shelvedDisk struct {
	volume, ownerID, scope string
	movedBy                string // the open migration of it, "" if there is none
	location               api.Location
}

func shelvedDisks(ctx context.Context, q ledger.Querier, instanceID string) ([]shelvedDisk, error) {
	scan := func(row ledger.Scanner) (d shelvedDisk, err error) {
		err = row.Scan(append([]any{&d.volume, &d.ownerID, &d.scope, &d.movedBy}, locationFields(&d.location)...)...)
		return d, err
	}
	return ledger.QueryAll(ctx, q, scan, `SELECT v.name, COALESCE((
			SELECT oi.host_id FROM attachments oa JOIN instances oi ON oi.id = oa.instance_id
			WHERE oa.volume_id = v.id AND oi.id <> a.instance_id AND oi.state <> 'shelved_offloaded' LIMIT 1), v.host_id), l.scope, COALESCE(m.id, ''), `+locationColumns+`
		FROM attachments a
		JOIN volumes v ON v.id = a.volume_id
		JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL
		LEFT JOIN migrations m ON m.volume_id = v.id AND `+MigrationOpen+`
		WHERE a.instance_id = ? ORDER BY a.device`, instanceID)
}

// checkDisksStill refuses to bring an instance back while a volume of it moves: its
// guest would write at src, and dst is a copy of before.
func checkDisksStill(instance string, disks []shelvedDisk) error {
	for _, d := range disks {
		if d.movedBy != "" {
			return api.Errorf(api.CodeMigrationActive, "cannot unshelve instance %s: migration %s is moving its volume %s; wait for its end, or cancel it", instance, d.movedBy, d.volume).
				With("migration_id", d.movedBy)
		}
	}
	return nil
}

// unreached returns the first of the volumes that a host does not reach, nil if it
// reaches all.
func unreached(ctx context.Context, q ledger.Querier, disks []shelvedDisk, hostID string) (*shelvedDisk, error) {
	for n, d := range disks {
		yes, err := reaches(ctx, q, hostID, d.ownerID, d.scope, d.location.Pool)
		if err != nil {
			return nil, err
		}
		if !yes {
			return &disks[n], nil
		}
	}
	return nil, nil //nolint:nilnil // it reaches all
}

// checkVolumes refuses a host that does not reach each volume of an instance, and every
// host while one of them moves.
func (tx *Tx) checkVolumes(ctx context.Context, i shelving) error {
	disks, err := shelvedDisks(ctx, tx, i.ID)
	if err != nil {
		return err
	}
	if err := checkDisksStill(i.Name, disks); err != nil {
		return err
	}
	d, err := unreached(ctx, tx, disks, i.caller)
	if err != nil {
		return err
	}
	if d != nil {
		return notReached(i.Name, "this host", *d)
	}
	for _, d := range disks {
		if err := tx.checkNotBehind(ctx, "give this host", d.volume, d.location, i.caller); err != nil {
			return err
		}
	}
	return nil
}

func notReached(instance, host string, d shelvedDisk) error {
	return api.Errorf(api.CodeUnsupportedDisk, "cannot unshelve instance %s on %s: %s of its volume %s is in no shared pool that it has", instance, host, Place(d.location), d.volume).
		With("volume", d.volume)
}
