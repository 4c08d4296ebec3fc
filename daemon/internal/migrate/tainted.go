// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
)

// TaintedGuest is a guest whose process a move while all guests write has asked by its monitor:
// libvirt calls the domain tainted for as long as the process lives.
type TaintedGuest struct {
	InstanceName, MigrationID, VolumeName string
}

// TaintedGuests are the guests of this host that are tainted by a move, by the process that was
// noted when their writes were first followed. A move that went through has ended the process.
func (m *Manager) TaintedGuests(ctx context.Context) ([]TaintedGuest, error) {
	ops, err := m.journal.Ops(ctx, steps.KindLiveTrack, false)
	if err != nil {
		return nil, request.JournalError(err)
	}
	var all []TaintedGuest
	for _, o := range slices.Backward(ops) { // the newest is most likely of the process that runs
		var in steps.LiveInput
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
		}
		st, err := m.runner.Status(ctx, o.ID)
		if err != nil {
			return nil, request.JournalError(err)
		}
		for _, g := range in.Guests {
			known := slices.ContainsFunc(all, func(t TaintedGuest) bool { return t.InstanceName == g.Name })
			process := steps.TrackedProcess(&st, g.ID)
			if known || process == "" {
				continue
			}
			now, err := m.ports.HV.Process(ctx, g.ID, g.Target)
			switch {
			case errors.Is(err, hv.ErrNotActive), errors.Is(err, hv.ErrNotFound):
			case err != nil:
				return nil, steps.HVRefusal(err)
			case now.ID == process:
				all = append(all, TaintedGuest{g.Name, in.MigrationID, in.VolumeName})
			}
		}
	}
	return all, nil
}
