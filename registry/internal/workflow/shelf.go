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

// shelving is an instance with what the rules of the shelf need.
type shelving struct {
	api.Instance
	hostID   string // of the host that has it, or had it last
	hostGone bool   // an operator's word stands that this host cannot touch anything
	op       string // that moved it to the shelf or from it last
	// What is stored beside the definition of an instance on the shelf, else "".
	askedHostID string // for which an operator asked for it
	claimOp     string // that brings it back
	fromHostID  string // that had it before that op
}

// readShelving reads the instance that ref names. A fence that is older than a restore
// does not say that its host is gone: that may have come back in the lost history.
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

// storedDefinition is what an instance on the shelf is made of. Disks has all its
// slots: those that were empty when it was shelved as they were left then.
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
	// What was shelved with the instance is newer than what its slots keep.
	maps.Copy(slots, d.Disks)
	if len(slots) > 0 {
		d.Disks = slots
	}
	return d, nil
}

// shelvedInstance is the answer to a transition, with the definition if it is
// asked for.
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

// doneBy reports whether the op has made the transition before, and its answer was
// lost. A definition is replaced as often as its host says so.
func (i shelving) doneBy(in api.InstanceTransition, caller string) bool {
	return in.From != in.To && i.State == in.To && i.op == in.OpID &&
		(i.hostID == caller || in.To == api.InstanceShelvedOffloaded)
}

// checkHolder refuses every host that does not have the instance, and also the host that
// has it, if the instance is in another state than that host believes.
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

// moveInstance is the swap of the compare and swap.
func (tx *changeTx) moveInstance(ctx context.Context, i shelving, in api.InstanceTransition) error {
	return tx.Exec(ctx, "UPDATE instances SET state = ?, shelf_op = ?, updated_us = ? WHERE id = ?", in.To, in.OpID, tx.At.UnixMicro(), i.ID)
}

// auditShelving adds a transition to the trail, as one of the host that is named.
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
