// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

type instanceStep struct{ from, to api.InstanceState }

var instanceSteps = map[instanceStep]func(tx *changeTx, ctx context.Context, i shelving, in api.InstanceTransition, caller string) error{
	{api.InstanceStopped, api.InstanceShelved}:          (*changeTx).putOnShelf,
	{api.InstanceShelved, api.InstanceShelved}:          (*changeTx).replaceOnShelf,
	{api.InstanceShelved, api.InstanceShelvedOffloaded}: (*changeTx).offload,
	{api.InstanceShelvedOffloaded, api.InstanceShelved}: (*changeTx).claimInstance,
	{api.InstanceShelved, api.InstanceStopped}:          (*changeTx).endShelf,
}

// Transition moves an instance between its host and the shelf, called by that host (see
// api.InstanceTransition). A repeated op gets the answer of its first call.
func (s *Shelf) Transition(ctx context.Context, call store.Call, ref string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	if err := checkInstanceTransition(in); err != nil {
		return api.ShelvedInstance{}, err
	}
	return mutate(ctx, s.db, call, "instance.transition", []any{ref, in}, func(ctx context.Context, tx *changeTx) (none api.ShelvedInstance, err error) {
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return none, err
		}
		i, err := readShelving(ctx, tx, ref)
		if err != nil {
			return none, err
		}
		if !i.doneBy(in, hostID) {
			if err := instanceSteps[instanceStep{in.From, in.To}](tx, ctx, i, in, hostID); err != nil {
				return none, err
			}
			// The host's next report may be the same as its last one.
			tx.OnCommit(func() { s.reports.Invalidate(hostID, i.hostID) })
			if err := tx.auditShelving(ctx, i, in, hostID); err != nil {
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
		return cmp.Or(validate.Required("op id", in.OpID), validate.InstanceDefinition(*in.Definition))
	}
	return validate.Required("op id", in.OpID)
}

// putOnShelf stores the definition of a stopped instance. The host's last report may still show
// the guest running; this call is newer and overrides it.
func (tx *changeTx) putOnShelf(ctx context.Context, i shelving, in api.InstanceTransition, caller string) error {
	if i.State == api.InstanceRunning || i.State == api.InstancePaused || i.State.Standstill() {
		i.State = api.InstanceStopped
	}
	if err := i.checkHolder(in, caller); err != nil {
		return err
	}
	if err := cmp.Or(store.CheckUnlocked("shelve", i.Instance), tx.CheckNoSplitBrain("shelve instance "+i.Name, i.ID, caller)); err != nil {
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

func (tx *changeTx) replaceOnShelf(ctx context.Context, i shelving, in api.InstanceTransition, caller string) error {
	if err := i.checkHolder(in, caller); err != nil {
		return err
	}
	if err := tx.storeShelf(ctx, i.ID, *in.Definition); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// offload leaves an instance without a host, at the end of shelving or after a failed unshelving.
func (tx *changeTx) offload(ctx context.Context, i shelving, in api.InstanceTransition, caller string) error {
	if err := i.checkHolder(in, caller); err != nil {
		return err
	}
	switch i.claimOp {
	case "":
		if err := tx.checkDisksAtRest(ctx, i); err != nil {
			return err
		}
	case in.OpID:
		if err := tx.undoClaim(ctx, i); err != nil {
			return err
		}
	default:
		return api.Errorf(api.CodeConflict, "instance %s is being brought back by op %s", i.Name, i.claimOp).With("op_id", i.claimOp)
	}
	if err := tx.Exec(ctx, "UPDATE instances SET note = '' WHERE id = ?", i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}

// endShelf removes the shelf of an instance: its host has defined the domain, or never undefined
// it.
func (tx *changeTx) endShelf(ctx context.Context, i shelving, in api.InstanceTransition, caller string) error {
	if err := i.checkHolder(in, caller); err != nil {
		return err
	}
	if err := tx.Exec(ctx, "DELETE FROM shelves WHERE instance_id = ?", i.ID); err != nil {
		return err
	}
	return tx.moveInstance(ctx, i, in)
}
