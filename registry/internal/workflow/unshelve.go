// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// UnshelvePlan has the hosts that may unshelve an instance.
type UnshelvePlan struct {
	Instance api.Instance
	// Hosts has the ids of these hosts, best first: the host that still has the instance; or the
	// requested host; or all hosts that reach its volumes, with its last host first.
	Hosts []string
}

// PlanUnshelve returns the hosts that may unshelve an instance (only hostRef if set), or refuses
// for every reason that is known now.
func (s *Shelf) PlanUnshelve(ctx context.Context, ref, hostRef string) (UnshelvePlan, error) {
	return ledger.View(ctx, s.db.Reader(), func(q ledger.Querier) (UnshelvePlan, error) {
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
		held := i.Host != "" && !i.hostGone // AskUnshelve takes it from a lost host
		plan := UnshelvePlan{Instance: i.Instance, Hosts: []string{i.hostID}}
		switch {
		case !i.State.OnShelf():
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s: it is %s on host %s, not shelved", i.Name, i.State, i.Host).With("state", i.State).With("host", i.Host)
		case held && asked != "" && asked != i.hostID && i.claimOp != "":
			return plan, api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s is bringing it back", i.Name, i.Host)
		case held && asked != "" && asked != i.hostID:
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s there: it is still on host %s; take it off that with `%s` first", i.Name, i.Host, shell.Line("volferryctl", "instance", "shelve", i.Name)).With("state", i.State)
		}
		if err := checkUnshelvable(i.Instance); err != nil || held {
			return plan, err
		}
		plan.Hosts, err = hostsForShelved(ctx, q, i, asked)
		return plan, err
	})
}

// hostsForShelved returns the hosts that reach all volumes of an instance without a host, its last
// host first. If asked is not "", it considers only that host.
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

// AskUnshelve records that an operator asked a host to unshelve an instance, so that the host may
// claim it. If a host has the instance, nothing changes, unless that host is fenced: then
// AskUnshelve takes the instance from it.
func (s *Shelf) AskUnshelve(ctx context.Context, call store.Call, ref, hostID string) error {
	call.Key = ""
	_, err := mutate(ctx, s.db, call, "instance.ask", nil, func(ctx context.Context, tx *changeTx) (none struct{}, err error) {
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

// takeFromGone takes a shelved instance from a fenced host, as if the host had offloaded it or
// undone its claim. If the domain still exists there, it is off and guarded, and a fenced host
// does not get the registry's answer that removes the guard.
func (tx *changeTx) takeFromGone(ctx context.Context, i shelving) error {
	in := api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, OpID: i.claimOp}
	if err := tx.offload(ctx, i, in, i.hostID); err != nil {
		return err
	}
	return tx.auditShelving(ctx, i, in, i.hostID)
}
