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
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// TaintedGuest is a guest whose process a move has asked by its monitor: for what it writes, in a
// move while all guests write, for what it has at an address, or for its dirty bitmaps. libvirt
// calls the domain tainted for as long as the process lives.
type TaintedGuest struct {
	InstanceName, MigrationID, VolumeName string
}

// TaintedGuests are the guests of this host that are tainted by a move, by the process that was
// noted when their writes were first followed, or when they were put onto their overlay. A move
// while all guests write that went through has ended the process.
func (m *Manager) TaintedGuests(ctx context.Context) (all []TaintedGuest, err error) {
	for _, asked := range []func(context.Context) ([]askedProcess, error){m.trackedProcesses, m.processesUnderOverlays} {
		processes, err := asked(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range slices.Backward(processes) { // the newest is most likely of the process that runs
			known := slices.ContainsFunc(all, func(t TaintedGuest) bool { return t.InstanceName == p.InstanceName })
			if known || p.process == "" {
				continue
			}
			now, err := m.ports.HV.Process(ctx, p.id, p.target)
			switch {
			case errors.Is(err, hv.ErrNotActive), errors.Is(err, hv.ErrNotFound):
			case err != nil:
				return nil, steps.HVRefusal(err)
			case now.ID == p.process:
				all = append(all, p.TaintedGuest)
			}
		}
	}
	return all, nil
}

// askedProcess is the process of a guest that a move has asked.
type askedProcess struct {
	TaintedGuest

	id, target string
	process    string
}

// trackedProcesses are those whose guests' writes were followed.
func (m *Manager) trackedProcesses(ctx context.Context) (all []askedProcess, err error) {
	err = eachOp(ctx, m, steps.KindLiveTrack, func(in *steps.LiveInput, st *op.Status) {
		for _, g := range in.Guests {
			all = append(all, askedProcess{TaintedGuest{g.Name, in.MigrationID, in.VolumeName}, g.ID, g.Target, steps.TrackedProcess(st, g.ID)})
		}
	})
	return all, err
}

// processesUnderOverlays are those that were put onto the overlay of a move from or to an address,
// or of a qcow2 image, which may have dirty bitmaps.
func (m *Manager) processesUnderOverlays(ctx context.Context) (all []askedProcess, err error) {
	err = eachOp(ctx, m, steps.KindStart, func(in *steps.Input, st *op.Status) {
		s := &in.Spec
		if api.IsNetwork(s.Src.Path) || api.IsNetwork(s.Dst.Path) || s.Src.Format == api.FormatQcow2 {
			all = append(all, askedProcess{TaintedGuest{s.InstanceName, s.MigrationID, s.VolumeName}, s.InstanceID, s.Target, steps.SwitchedProcess(st)})
		}
	})
	return all, err
}

// eachOp visits the ops of a kind in the journal, in order, each with its input.
func eachOp[In any](ctx context.Context, m *Manager, kind string, visit func(in *In, st *op.Status)) error {
	ops, err := m.journal.Ops(ctx, kind, false)
	if err != nil {
		return request.JournalError(err)
	}
	for _, o := range ops {
		var in In
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return fmt.Errorf("decode the input of op %s: %w", o.ID, err)
		}
		st, err := m.runner.Status(ctx, o.ID)
		if err != nil {
			return request.JournalError(err)
		}
		visit(&in, &st)
	}
	return nil
}
