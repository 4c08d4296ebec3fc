// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// UnshelvePlan says where an instance may be brought back.
type UnshelvePlan struct {
	Instance api.Instance
	// Hosts are the hosts that may have it, by id, best first: the one that still
	// has it, or the one that was asked for, or those that reach all its volumes with
	// the one that had it last first.
	Hosts []string
}

// PlanUnshelve says where an instance may be brought back, at hostRef if that is
// not "", or refuses it for every reason that is known now.
func (s *Store) PlanUnshelve(ctx context.Context, ref, hostRef string) (UnshelvePlan, error) {
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) (UnshelvePlan, error) {
		id, err := Resolve(ctx, q, KindInstance, ref)
		if err != nil {
			return UnshelvePlan{}, err
		}
		i, err := InstanceByID(ctx, q, id)
		if err != nil {
			return UnshelvePlan{}, err
		}
		asked := ""
		if hostRef != "" {
			if asked, err = Resolve(ctx, q, KindHost, hostRef); err != nil {
				return UnshelvePlan{}, err
			}
		}
		var (
			last, claimOp string
			gone          bool
		)
		if err := q.QueryRowContext(ctx, `SELECT i.host_id, COALESCE(s.claim_op, ''), h.fenced AND NOT h.behind
			FROM instances i JOIN hosts h ON h.id = i.host_id LEFT JOIN shelves s ON s.instance_id = i.id WHERE i.id = ?`, id).
			Scan(&last, &claimOp, &gone); err != nil {
			return UnshelvePlan{}, fmt.Errorf("read host of instance: %w", err)
		}
		held := i.Host != "" && !gone // AskUnshelve takes it from a host that is gone
		plan := UnshelvePlan{Instance: i, Hosts: []string{last}}
		switch {
		case !isShelved(i.State):
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s: it is %s on host %s, not shelved", i.Name, i.State, i.Host).With("state", i.State).With("host", i.Host)
		case held && asked != "" && asked != last && claimOp != "":
			return plan, api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s is bringing it back", i.Name, i.Host)
		case held && asked != "" && asked != last:
			return plan, api.Errorf(api.CodeStateForbidden, "cannot unshelve instance %s there: it is still on host %s; take it off that with `volferryctl instance shelve %s` first", i.Name, i.Host, i.Name).With("state", i.State)
		}
		if err := checkUnshelvable(i); err != nil || held {
			return plan, err
		}
		plan.Hosts, err = hostsForShelved(ctx, q, i, last, asked)
		return plan, err
	})
}

// hostsForShelved returns the hosts that reach all volumes of an instance that none
// has: asked alone if it is not "", else all, with last first.
func hostsForShelved(ctx context.Context, q ledger.Querier, i api.Instance, last, asked string) ([]string, error) {
	disks, err := shelvedDisks(ctx, q, i.ID)
	if err == nil {
		err = checkDisksStill(i.Name, disks)
	}
	if err != nil {
		return nil, err
	}
	hosts, err := ledger.QueryAll(ctx, q, scanHostRow, hostQuery+" WHERE ?1 IN ('', id) ORDER BY id = ?2 DESC, name", asked, last)
	if err != nil {
		return nil, err
	}
	var (
		fit     []string
		refusal error
	)
	for _, h := range hosts {
		d, err := unreached(ctx, q, disks, h.ID)
		switch {
		case err != nil:
			return nil, err
		case d == nil:
			fit = append(fit, h.ID)
		case refusal == nil:
			refusal = notReached(i.Name, "host "+h.Name, *d)
		}
	}
	if len(fit) == 0 {
		return nil, refusal
	}
	return fit, nil
}

// AskUnshelve notes that an operator asked for an instance on a host, which may
// then claim it. One that is on a host needs no claim, unless that host is fenced:
// then it is that host's no more.
func (s *Store) AskUnshelve(ctx context.Context, call Call, ref, hostID string) error {
	call.Key = ""
	_, err := Mutate(ctx, s, call, "instance.ask", nil, func(ctx context.Context, tx *Tx) (none struct{}, err error) {
		if err := tx.checkOperator("ask for an instance on a host"); err != nil {
			return none, err
		}
		id, err := Resolve(ctx, tx, KindInstance, ref)
		if err != nil {
			return none, err
		}
		i, err := InstanceByID(ctx, tx, id)
		if err == nil && i.State == api.InstanceShelved {
			i.State, err = tx.offloadFenced(ctx, i)
		}
		if err != nil || i.State != api.InstanceShelvedOffloaded {
			return none, err
		}
		host, err := tx.hostRow(ctx, hostID)
		if err != nil {
			return none, err
		}
		if err := tx.Exec(ctx, "UPDATE shelves SET asked_host_id = ? WHERE instance_id = ?", hostID, id); err != nil {
			return none, err
		}
		return none, tx.Audit(ctx, api.Event{What: "instance.ask", Host: host.Name, Object: "instance/" + id, Details: map[string]any{"name": i.Name}})
	})
	return err
}

// offloadFenced leaves a shelved instance to no host if the one that has it was
// fenced, as if that had offloaded it, or undone its claim, and returns its state. A
// domain that is there all the same is off and guarded, and only the registry's word,
// which that host does not get, has the guard taken away.
func (tx *Tx) offloadFenced(ctx context.Context, i api.Instance) (api.InstanceState, error) {
	s, err := tx.shelving(ctx, i.ID, "")
	if err != nil {
		return i.State, err
	}
	host, err := tx.hostRow(ctx, s.hostID)
	if err != nil || !host.Fenced || host.Behind {
		return i.State, err
	}
	s.caller = s.hostID
	in := api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, OpID: s.shelf.claimOp}
	if err := tx.offload(ctx, s, in); err != nil {
		return i.State, err
	}
	return in.To, tx.auditShelving(ctx, s, in)
}
