// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Shelf has the instances that no host has, and moves instances to the shelf and from it.
type Shelf struct {
	db      *store.DB
	reports *store.Reports
}

type shelving struct {
	api.Instance
	hostID   string // its host, or its last one
	hostGone bool   // the host has a valid fence
	op       string // the last op that shelved or unshelved it
	// The columns of its shelf, "" if it is not on the shelf.
	askedHostID string // the host that an operator asked to unshelve it
	claimOp     string // the op that unshelves it
	fromHostID  string // the instance's host before claimOp
}

// readShelving returns the instance that ref names. hostGone is false if the host has not rejoined
// since the database was restored from a backup: a fence in the backup may have ended afterwards.
func readShelving(ctx context.Context, q ledger.Querier, ref string) (i shelving, err error) {
	id, err := store.Resolve(ctx, q, store.KindInstance, ref)
	if err != nil {
		return i, err
	}
	if i.Instance, err = store.InstanceByID(ctx, q, id); err != nil {
		return i, err
	}
	if err := q.QueryRowContext(ctx, `SELECT i.host_id, h.fenced AND NOT h.behind, i.shelf_op,
			COALESCE(s.asked_host_id, ''), COALESCE(s.claim_op, ''), COALESCE(s.from_host_id, '')
		FROM instances i JOIN hosts h ON h.id = i.host_id LEFT JOIN shelves s ON s.instance_id = i.id WHERE i.id = ?`, id).
		Scan(&i.hostID, &i.hostGone, &i.op, &i.askedHostID, &i.claimOp, &i.fromHostID); err != nil {
		return i, fmt.Errorf("read shelf: %w", err)
	}
	return i, nil
}

func (tx *changeTx) storeShelf(ctx context.Context, instanceID string, d api.InstanceDefinition) error {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode definition: %w", err)
	}
	return tx.Exec(ctx, `INSERT INTO shelves (instance_id, definition, created_us) VALUES (?1, ?2, ?3)
		ON CONFLICT (instance_id) DO UPDATE SET definition = ?2`, instanceID, string(b), tx.At.UnixMicro())
}

// storedDefinition returns an instance's definition. Its Disks include the stored definitions of
// slots that were empty when the instance was shelved.
func (tx *changeTx) storedDefinition(ctx context.Context, instanceID string) (*api.InstanceDefinition, error) {
	var text []byte
	if err := tx.QueryRowContext(ctx, "SELECT definition FROM shelves WHERE instance_id = ?", instanceID).Scan(&text); err != nil {
		return nil, fmt.Errorf("read shelf: %w", err)
	}
	d := new(api.InstanceDefinition)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("decode definition: %w", err)
	}
	slots, err := store.SlotDefinitions(ctx, tx, instanceID)
	if err != nil {
		return nil, err
	}
	// The definition from shelving is newer than the slots' definitions.
	maps.Copy(slots, d.Disks)
	if len(slots) > 0 {
		d.Disks = slots
	}
	return d, nil
}

func (tx *changeTx) shelvedInstance(ctx context.Context, instanceID string, definition bool) (out api.ShelvedInstance, err error) {
	if out.Instance, err = store.InstanceByID(ctx, tx, instanceID); err != nil {
		return out, err
	}
	if out.Attachments, err = store.AttachmentsAt(ctx, tx, instanceID); err != nil {
		return out, err
	}
	if definition {
		out.Definition, err = tx.storedDefinition(ctx, instanceID)
	}
	return out, err
}

// doneBy reports whether the same op has already made the transition, so that only its answer was
// lost. Replacing a definition is never skipped.
func (i shelving) doneBy(in api.InstanceTransition, caller string) bool {
	return in.From != in.To && i.State == in.To && i.op == in.OpID &&
		(i.hostID == caller || in.To == api.InstanceShelvedOffloaded)
}

func (i shelving) checkHolder(in api.InstanceTransition, caller string) error {
	switch {
	case i.hostID != caller && i.Host == "":
		return api.Errorf(api.CodeNotYourHost, "instance %s is %s, and another host had it last", i.Name, i.State)
	case i.hostID != caller:
		return api.Errorf(api.CodeNotYourHost, "instance %s is host %s's", i.Name, i.Host)
	case i.State != in.From:
		return i.conflict(in)
	}
	return nil
}

func (i shelving) conflict(in api.InstanceTransition) error {
	return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", i.Name, i.State, in.From).With("state", i.State)
}

func (tx *changeTx) moveInstance(ctx context.Context, i shelving, in api.InstanceTransition) error {
	return tx.Exec(ctx, "UPDATE instances SET state = ?, shelf_op = ?, updated_us = ? WHERE id = ?", in.To, in.OpID, tx.At.UnixMicro(), i.ID)
}

func (tx *changeTx) auditShelving(ctx context.Context, i shelving, in api.InstanceTransition, hostID string) error {
	_, host, err := tx.HostNamed(ctx, hostID)
	if err != nil {
		return err
	}
	return tx.Audit(ctx, api.Event{
		What: "instance.transition", Host: host, Object: "instance/" + i.ID, From: string(i.State), To: string(in.To), OpID: in.OpID,
		Details: map[string]any{"name": i.Name},
	})
}
