// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

const (
	// maxDomain bounds the definition of a domain, maxNVRAM what is kept of the
	// variables of its firmware, compressed. Both and the definitions of the disks
	// have to fit into one request.
	maxDomain = 512 << 10
	maxNVRAM  = 256 << 10
)

// instanceStep is a transition by its two states.
type instanceStep struct{ from, to api.InstanceState }

// instanceSteps are the transitions that there are, with what each does to an
// instance that may make it.
var instanceSteps = map[instanceStep]func(*Tx, context.Context, shelving, api.InstanceTransition) error{
	{api.InstanceStopped, api.InstanceShelved}:          (*Tx).putOnShelf,
	{api.InstanceShelved, api.InstanceShelved}:          (*Tx).replaceOnShelf,
	{api.InstanceShelved, api.InstanceShelvedOffloaded}: (*Tx).offload,
	{api.InstanceShelvedOffloaded, api.InstanceShelved}: (*Tx).claimInstance,
	{api.InstanceShelved, api.InstanceStopped}:          (*Tx).endShelf,
}

// TransitionInstance moves an instance between its host and the shelf, on the word
// of that host and as api.InstanceTransition says. The same op that asks again for
// what it has done is answered as then.
func (s *Store) TransitionInstance(ctx context.Context, call Call, ref string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	if err := checkInstanceTransition(in); err != nil {
		return api.ShelvedInstance{}, err
	}
	return Mutate(ctx, s, call, "instance.transition", []any{ref, in}, func(ctx context.Context, tx *Tx) (none api.ShelvedInstance, err error) {
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return none, err
		}
		i, err := tx.shelving(ctx, ref, hostID)
		if err != nil {
			return none, err
		}
		if !i.doneBy(in) {
			if err := instanceSteps[instanceStep{in.From, in.To}](tx, ctx, i, in); err != nil {
				return none, err
			}
			// The next report may say what the last one said before.
			tx.OnCommit(func() { s.hosts.Invalidate(i.caller, i.hostID) })
			if err := tx.auditShelving(ctx, i, in); err != nil {
				return none, err
			}
		}
		return tx.shelvedInstance(ctx, i.ID, in.From == api.InstanceShelvedOffloaded)
	})
}

func checkInstanceTransition(in api.InstanceTransition) error {
	if instanceSteps[instanceStep{in.From, in.To}] == nil {
		return validate.Invalid("an instance cannot be moved from %s to %s", validate.Quote(string(in.From)), validate.Quote(string(in.To)))
	}
	stores := in.To == api.InstanceShelved && in.From != api.InstanceShelvedOffloaded
	switch {
	case stores && in.Definition == nil:
		return validate.Invalid("the definition of the instance is missing")
	case !stores && in.Definition != nil:
		return validate.Invalid("no definition of the instance is taken from %s to %s", in.From, in.To)
	case stores:
		return cmp.Or(validate.Required("op id", in.OpID), checkInstanceDefinition(*in.Definition))
	}
	return validate.Required("op id", in.OpID)
}

func checkInstanceDefinition(d api.InstanceDefinition) error {
	if err := checkDocument("definition of the domain", d.Domain, maxDomain); err != nil {
		return err
	}
	if len(d.NVRAM) > maxNVRAM {
		return validate.Invalid("the NVRAM has %d bytes, and at most %d are kept", len(d.NVRAM), maxNVRAM)
	}
	for device, disk := range d.Disks {
		if err := cmp.Or(validate.Device(device), checkSlotDefinition(device, disk)); err != nil {
			return err
		}
	}
	return nil
}

// shelving is an instance with what the rules of its transitions need.
type shelving struct {
	api.Instance
	caller string // the id of the host that asks
	hostID string // of the host that has it, or had it last
	op     string // that moved it to the shelf or from it last
	shelf  shelf
}

func (tx *Tx) shelving(ctx context.Context, ref, caller string) (shelving, error) {
	i := shelving{caller: caller}
	id, err := Resolve(ctx, tx, KindInstance, ref)
	if err != nil {
		return i, err
	}
	if i.Instance, err = InstanceByID(ctx, tx, id); err != nil {
		return i, err
	}
	if err := tx.QueryRowContext(ctx, "SELECT host_id, shelf_op FROM instances WHERE id = ?", id).Scan(&i.hostID, &i.op); err != nil {
		return i, fmt.Errorf("read host of instance: %w", err)
	}
	i.shelf, err = tx.shelf(ctx, id)
	return i, err
}

// doneBy says whether the op has made the transition before, and its answer was
// lost. A definition is replaced as often as its host says so.
func (i shelving) doneBy(in api.InstanceTransition) bool {
	return in.From != in.To && i.State == in.To && i.op == in.OpID &&
		(i.hostID == i.caller || in.To == api.InstanceShelvedOffloaded)
}

// checkHolder refuses every host but the one that has the instance, and that one
// where the instance is in another state than it believes.
func (i shelving) checkHolder(in api.InstanceTransition) error {
	switch {
	case i.hostID != i.caller && i.Host == "":
		return api.Errorf(api.CodeNotYourHost, "instance %s is %s, and another host had it last", i.Name, i.State)
	case i.hostID != i.caller:
		return api.Errorf(api.CodeNotYourHost, "instance %s is host %s's", i.Name, i.Host)
	case i.State != in.From:
		return i.conflict(in)
	}
	return nil
}

func (i shelving) conflict(in api.InstanceTransition) error {
	return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", i.Name, i.State, in.From).With("state", i.State)
}

// putOnShelf stores what its host knows of an instance that is off. Whether it
// runs is known to its host first: its word here is newer than its last report.
func (tx *Tx) putOnShelf(ctx context.Context, i shelving, in api.InstanceTransition) error {
	if i.State == api.InstanceRunning || i.State == api.InstancePaused {
		i.State = api.InstanceStopped
	}
	if err := i.checkHolder(in); err != nil {
		return err
	}
	if err := cmp.Or(lockOf(i.Instance).check("shelve", i.Name), tx.CheckNoSplitBrain("shelve instance "+i.Name, i.ID, i.caller)); err != nil {
		return err
	}
	if err := tx.checkDisksAtRest(ctx, i); err != nil {
		return err
	}
	if err := tx.storeShelf(ctx, i.ID, *in.Definition); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// checkDisksAtRest refuses an instance one of whose volumes moves, or is being
// attached or detached.
func (tx *Tx) checkDisksAtRest(ctx context.Context, i shelving) error {
	type disk struct {
		volume, migration string
		state             api.AttachmentState
	}
	scan := func(row ledger.Scanner) (d disk, err error) {
		err = row.Scan(&d.volume, &d.state, &d.migration)
		return d, err
	}
	disks, err := ledger.QueryAll(ctx, tx, scan, `SELECT v.name, a.state, COALESCE(m.id, '') FROM attachments a
		JOIN volumes v ON v.id = a.volume_id LEFT JOIN migrations m ON m.volume_id = v.id AND `+MigrationOpen+`
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

// replaceOnShelf stores the definition anew: it was changed on the host meanwhile.
func (tx *Tx) replaceOnShelf(ctx context.Context, i shelving, in api.InstanceTransition) error {
	if err := i.checkHolder(in); err != nil {
		return err
	}
	if err := tx.storeShelf(ctx, i.ID, *in.Definition); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// offload leaves an instance to no host: for good, or because the op that claimed
// it could not bring it back.
func (tx *Tx) offload(ctx context.Context, i shelving, in api.InstanceTransition) error {
	if err := i.checkHolder(in); err != nil {
		return err
	}
	switch i.shelf.claimOp {
	case "":
		if err := tx.checkDisksAtRest(ctx, i); err != nil {
			return err
		}
	case in.OpID:
		if err := tx.undoClaim(ctx, i); err != nil {
			return err
		}
	default:
		return api.Errorf(api.CodeConflict, "instance %s is being brought back by op %s", i.Name, i.shelf.claimOp).With("op_id", i.shelf.claimOp)
	}
	if err := tx.Exec(ctx, "UPDATE instances SET note = '' WHERE id = ?", i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// endShelf ends the shelf of an instance whose host has its domain as it
// should be, or still has it.
func (tx *Tx) endShelf(ctx context.Context, i shelving, in api.InstanceTransition) error {
	if err := i.checkHolder(in); err != nil {
		return err
	}
	if err := tx.Exec(ctx, "DELETE FROM shelves WHERE instance_id = ?", i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// moveInstance is the swap of the compare and swap.
func (tx *Tx) moveInstance(ctx context.Context, i shelving, in api.InstanceTransition) error {
	return tx.Exec(ctx, "UPDATE instances SET state = ?, shelf_op = ?, updated_us = ? WHERE id = ?", in.To, in.OpID, tx.At.UnixMicro(), i.ID)
}

func (tx *Tx) auditShelving(ctx context.Context, i shelving, in api.InstanceTransition) error {
	host, err := tx.hostRow(ctx, i.caller)
	if err != nil {
		return err
	}
	return tx.Audit(ctx, api.Event{
		What: "instance.transition", Host: host.Name, Object: "instance/" + i.ID, From: string(i.State), To: string(in.To), OpID: in.OpID,
		Details: map[string]any{"name": i.Name},
	})
}
