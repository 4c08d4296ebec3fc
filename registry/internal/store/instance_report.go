// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// isShelved says whether an instance in this state is on the shelf, where only
// TransitionInstance moves it.
func isShelved(state api.InstanceState) bool {
	return state == api.InstanceShelved || state == api.InstanceShelvedOffloaded
}

// reported is what the database has of an instance that a host may report.
type reported struct {
	id, note string
	state    api.InstanceState
	// own says that the host has it now; shelved_offloaded it only had it.
	own bool
}

// storeInstances takes what a host says of its instances, and returns those that are
// active there without being its own. It writes what is news alone: a report costs
// the writer one look, however long it is.
func (tx *changeTx) storeInstances(ctx context.Context, in api.HostReport) (strays []string, err error) {
	scan := func(row ledger.Scanner) (r reported, err error) {
		return r, row.Scan(&r.id, &r.note, &r.state, &r.own)
	}
	rows, err := ledger.QueryAll(ctx, tx, scan, "SELECT i.id, i.note, i.state, "+instanceHostID+" = ?1 FROM instances i WHERE i.host_id = ?1", in.ID)
	if err != nil {
		return nil, err
	}
	known := make(map[string]reported, len(rows))
	for _, r := range rows {
		known[r.id] = r
	}
	for _, i := range in.Instances {
		was, had := known[i.ID]
		if had {
			if err := tx.storeInstanceReport(ctx, was, i); err != nil {
				return nil, err
			}
		}
		if !was.own && (i.State == api.InstanceRunning || i.State == api.InstancePaused) {
			strays = append(strays, i.ID)
		}
	}
	return strays, nil
}

// storeInstanceReport takes what a host says of an instance that it has or had. No
// report puts one on the shelf or takes it from there.
func (tx *changeTx) storeInstanceReport(ctx context.Context, was reported, i api.InstanceReport) error {
	if was.state == api.InstanceShelvedOffloaded {
		return nil
	}
	state := i.State
	if isShelved(was.state) || isShelved(state) {
		state = was.state
	}
	if state == was.state && i.Note == was.note {
		return nil
	}
	if state == api.InstanceRunning && was.state != state {
		if err := tx.noteRanOn(ctx, i.ID); err != nil {
			return err
		}
	}
	return tx.Exec(ctx, "UPDATE instances SET state = ?, note = ?, updated_us = ? WHERE id = ?", state, i.Note, tx.At.UnixMicro(), i.ID)
}
