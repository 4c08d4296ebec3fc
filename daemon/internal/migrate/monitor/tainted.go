// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// A TaintedGuest is a guest with a process that received monitor commands from a move: to track
// its writes, for NBD or RBD images, or for its dirty bitmaps. libvirt marks the domain as tainted
// until the process ends.
type TaintedGuest struct {
	InstanceName, MigrationID, VolumeName string
}

// TaintedGuests returns the guests of this host that still have the process that a move began to
// track, or switched to the overlay. A completed move while all guests write has ended the
// process.
func (m *Monitor) TaintedGuests(ctx context.Context) (all []TaintedGuest, err error) {
	for _, asked := range []func(context.Context) ([]askedProcess, error){m.trackedProcesses, m.processesUnderOverlays} {
		processes, err := asked(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range slices.Backward(processes) { // the newest is probably the running one
			known := slices.ContainsFunc(all, func(t TaintedGuest) bool { return t.InstanceName == p.InstanceName })
			if known || p.process == "" {
				continue
			}
			now, err := m.hv.Process(ctx, p.id, p.target)
			switch {
			case errors.Is(err, hv.ErrNotActive), errors.Is(err, hv.ErrNotFound):
			case err != nil:
				return nil, look.HVRefusal(err)
			case now.ID == p.process:
				all = append(all, p.TaintedGuest)
			}
		}
	}
	return all, nil
}

type askedProcess struct {
	TaintedGuest

	id, target string
	process    string
}

func (m *Monitor) trackedProcesses(ctx context.Context) (all []askedProcess, err error) {
	err = eachOp(ctx, m, move.KindLiveTrack, func(in *move.LiveInput, st *op.Status) {
		for _, g := range in.Guests {
			all = append(all, askedProcess{TaintedGuest{g.Name, in.MigrationID, in.VolumeName}, g.ID, g.Target, plans.TrackedProcess(st, g.ID)})
		}
	})
	return all, err
}

// processesUnderOverlays returns the QEMU processes that a move switched to its overlay with
// monitor commands: src or dst is an NBD or RBD image, or src is a qcow2 image, which may have
// dirty bitmaps.
func (m *Monitor) processesUnderOverlays(ctx context.Context) (all []askedProcess, err error) {
	err = eachOp(ctx, m, move.KindStart, func(in *move.Input, st *op.Status) {
		s := &in.Spec
		if !st.Op.Has(overlay.SwitchStep) {
			return
		}
		if !s.SrcKind().Witnessed || !s.DstKind().Witnessed || s.Src.Format == api.FormatQcow2 {
			all = append(all, askedProcess{TaintedGuest{s.InstanceName, s.MigrationID, s.VolumeName}, s.InstanceID, s.Target, plans.SwitchedProcess(st)})
		}
	})
	return all, err
}

func eachOp[In any](ctx context.Context, m *Monitor, kind string, visit func(in *In, st *op.Status)) error {
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
