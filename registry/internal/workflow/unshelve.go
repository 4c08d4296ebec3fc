// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// UnshelvePlan says which hosts may bring an instance back.
type UnshelvePlan struct {
	Instance api.Instance
	// Hosts are the ids of the hosts that may have the instance, best first: the host that
	// still has it, or the host that was asked for, or all hosts that reach its volumes,
	// the one that had it last before the others.
	Hosts []string
}

// PlanUnshelve says which hosts may bring an instance back (only hostRef if that is not
// ""), or refuses it for every reason that is known now.
func (s *Store) PlanUnshelve(ctx context.Context, ref, hostRef string) (UnshelvePlan, error) {
	return ledger.View(ctx, s.Reader(), func(q ledger.Querier) (UnshelvePlan, error) {
		i, err := readShelving(ctx, q, ref)
		if err != nil {
			return UnshelvePlan{}, err
		}
		asked := ""
		if hostRef != "" {
			if asked, err = store.Resolve(ctx, q, store.KindHost, hostRef); err != nil {
				return UnshelvePlan{}, err
			}
		}
		held := i.Host != "" && !i.hostGone // AskUnshelve takes it from a host that is gone
		plan := UnshelvePlan{Instance: i.Instance, Hosts: []string{i.hostID}}
		switch {
		case !i.State.OnShelf():
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s: it is %s on host %s, not shelved", i.Name, i.State, i.Host).With("state", i.State).With("host", i.Host)
		case held && asked != "" && asked != i.hostID && i.claimOp != "":
			return plan, api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s is bringing it back", i.Name, i.Host)
		case held && asked != "" && asked != i.hostID:
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s there: it is still on host %s; take it off that with `%s` first", i.Name, i.Host, api.ShellLine("volferryctl", "instance", "shelve", i.Name)).With("state", i.State)
		}
		if err := checkUnshelvable(i.Instance); err != nil || held {
			return plan, err
		}
		plan.Hosts, err = hostsForShelved(ctx, q, i, asked)
		return plan, err
	})
}

// hostsForShelved returns the hosts that reach all volumes of an instance that none
// has: asked alone if it is not "", else all, first the one that had it last.
func hostsForShelved(ctx context.Context, q ledger.Querier, i shelving, asked string) ([]string, error) {
	disks, err := shelvedDisks(ctx, q, i.ID)
	if err == nil {
		err = checkDisksStill(i.Name, disks)
	}
	if err != nil {
		return nil, err
	}
	type host struct{ id, name string }
	scan := ledger.ScanInto(func(h *host) []any { return []any{&h.id, &h.name} })
	hosts, err := ledger.QueryAll(ctx, q, scan, "SELECT id, name FROM hosts WHERE ?1 IN ('', id) ORDER BY id = ?2 DESC, name", asked, i.hostID)
	if err != nil {
		return nil, err
	}
	var (
		fit     []string
		refusal error
	)
	for _, h := range hosts {
		d, err := unreached(ctx, q, disks, h.id)
		switch {
		case err != nil:
			return nil, err
		case d == nil:
			fit = append(fit, h.id)
		case refusal == nil:
			refusal = notReached(i.Name, "host "+h.name, *d)
		}
	}
	if len(fit) == 0 {
		return nil, refusal
	}
	return fit, nil
}

// AskUnshelve notes that an operator asked for an instance on a host, which may then claim
// it. An instance that is on a host needs no claim, unless that host is fenced and has lost
// it.
func (s *Store) AskUnshelve(ctx context.Context, call store.Call, ref, hostID string) error {
	call.Key = ""
	_, err := mutate(ctx, s, call, "instance.ask", nil, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
		if err := tx.CheckOperator("ask for an instance on a host"); err != nil {
			return none, err
		}
		i, err := readShelving(ctx, tx, ref)
		if err != nil {
			return none, err
		}
		if i.State == api.InstanceShelved && i.hostGone {
			if err := tx.takeFromGone(ctx, i); err != nil {
				return none, err
			}
			i.State = api.InstanceShelvedOffloaded
		}
		if i.State != api.InstanceShelvedOffloaded {
			return none, nil
		}
		id, host, err := tx.HostNamed(ctx, hostID)
		if err != nil {
			return none, err
		}
		if err := tx.Exec(ctx, "UPDATE shelves SET asked_host_id = ? WHERE instance_id = ?", id, i.ID); err != nil {
			return none, err
		}
		return none, tx.Audit(ctx, api.Event{What: "instance.ask", Host: host, Object: "instance/" + i.ID, Details: map[string]any{"name": i.Name}})
	})
	return err
}

// takeFromGone leaves a shelved instance to no host, as if the host that has it and is
// gone had offloaded it, or undone its claim. A domain that is there all the same is off
// and guarded, and its guard is taken away on the registry's word alone, which a fenced
// host does not get.
func (tx *changeTx) takeFromGone(ctx context.Context, i shelving) error {
	in := api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, OpID: i.claimOp}
	if err := tx.offload(ctx, i, in, i.hostID); err != nil {
		return err
	}
	return tx.auditShelving(ctx, i, in, i.hostID)
}
