// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

type opView struct {
	op.Status
	goal      move.Goal
	requestID string
	why       *api.Error
}

func (o *opView) undone() bool { return o.State == op.StateUndone }

func (o *opView) overtaken() bool {
	return o.undone() && move.Overtaken(o.Failure)
}

// ended returns why the registry has ended the migration of a finished op, nil if it has not.
func (o *opView) ended() *op.Failure {
	if is, _ := move.Abandoned(o.Failure); o.undone() && is {
		return o.Failure
	}
	if o.State != op.StateDone {
		return nil
	}
	behind := plans.AbandonedBehind(&o.Status)
	if _, kept := move.Abandoned(behind); kept && o.goal == move.GoalCancel {
		return nil // the guest is already on src, as in the registry
	}
	return behind
}

func (o *opView) abandoned() bool { return o.ended() != nil }

// abandoned returns why the registry has ended the migration, nil if it has not.
func (h *history) abandoned() *api.Error {
	for i := range h.ops {
		if ended := h.ops[i].ended(); ended != nil {
			return move.APIError(ended)
		}
	}
	return nil
}

// keptSrc reports whether the instance of a migration that the registry has ended still had src
// when that was found: then the guest's writes in the overlay belong there. The overlay of a guest
// that was switched to dst, or brought back to src, has nothing newer.
func (h *history) keptSrc() bool {
	for _, o := range slices.Backward(h.ops) {
		if ended := o.ended(); ended != nil {
			_, kept := move.Abandoned(ended)
			return kept && h.position() == move.OnOverlay
		}
	}
	return false
}

// leavesChain reports whether the op never changes the chain of its guest, as a copy: then only
// another program can have changed it.
func (o *opView) leavesChain() bool { return o.Op.Kind == move.KindCopy }

func (o *opView) failedWith(code api.Code) bool {
	return o.undone() && o.Failure != nil && o.Failure.Code == string(code)
}

// history is a migration: its spec and its ops, oldest first. Its methods are pure.
type history struct {
	spec move.Spec
	ops  []opView
}

// loadHistory reads a migration from the journal. A missing one is an *api.Error with not_found.
func (m *Manager) loadHistory(ctx context.Context, id string) (*history, error) {
	ops, err := m.journal.Group(ctx, id)
	if err != nil {
		return nil, request.JournalError(err)
	}
	if len(ops) == 0 {
		return nil, api.NotFoundHere("migration", id)
	}
	h := &history{}
	for i, o := range ops {
		var in move.Input
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
		}
		if i == 0 {
			h.spec = in.Spec
		}
		st, err := m.runner.Status(ctx, o.ID)
		if err != nil {
			return nil, request.JournalError(err)
		}
		h.ops = append(h.ops, opView{Status: st, goal: move.GoalOf(o.Kind), requestID: in.RequestID, why: in.Why})
	}
	return h, nil
}

// copiedBefore reports whether the built-in copier finished in one of the first i ops.
func (h *history) copiedBefore(i int) bool {
	return slices.ContainsFunc(h.ops[:i], func(o opView) bool {
		return o.goal == move.GoalCopy && o.Op.Kind != move.KindBeginMirror && o.State == op.StateDone
	})
}

// copiedBytes returns the copied bytes while no copy runs.
func (h *history) copiedBytes() int64 {
	if h.copiedBefore(len(h.ops)) {
		return h.spec.SizeBytes()
	}
	for _, o := range slices.Backward(h.ops) {
		if n, known := transfer.CopiedBytes(&o.Status); known {
			return n
		}
	}
	return 0
}

// running returns the newest op that is not final, nil if none.
func (h *history) running() *opView {
	for i := len(h.ops) - 1; i >= 0; i-- {
		if !h.ops[i].State.Final() {
			return &h.ops[i]
		}
	}
	return nil
}

// find returns the newest op for a goal, nil if none.
func (h *history) find(g move.Goal) *opView {
	for i := len(h.ops) - 1; i >= 0; i-- {
		if h.ops[i].goal == g {
			return &h.ops[i]
		}
	}
	return nil
}

// op returns the op with this id, which must be the migration's.
func (h *history) op(id string) *opView {
	return &h.ops[slices.IndexFunc(h.ops, func(o opView) bool { return o.Op.ID == id })]
}

func (m *Manager) ids(ctx context.Context) ([]string, error) {
	ops, err := m.starts(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.Group
	}
	return ids, nil
}

// starts returns the first op of every migration, oldest first.
func (m *Manager) starts(ctx context.Context) ([]op.Op, error) {
	var ops []op.Op
	for _, kind := range []string{move.KindStart, move.KindStartOffline, move.KindStartMirror, move.KindCopySaved, move.KindMakeLive} {
		more, err := m.journal.Ops(ctx, kind, false)
		if err != nil {
			return nil, request.JournalError(err)
		}
		ops = append(ops, more...)
	}
	sortByAge(ops)
	return ops, nil
}

func specOf(start op.Op) (move.Spec, error) {
	var in move.Input
	if err := json.Unmarshal(start.Input, &in); err != nil {
		return move.Spec{}, fmt.Errorf("decode the input of op %s: %w", start.ID, err)
	}
	return in.Spec, nil
}

func sortByAge(ops []op.Op) {
	slices.SortStableFunc(ops, func(a, b op.Op) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// eachOpen calls f for the migrations that are not known to have ended, until f returns an error.
func (m *Manager) eachOpen(ctx context.Context, f func(*history) error) error {
	ids, err := m.ids(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, ended := m.ended.Load(id); ended {
			continue
		}
		h, err := m.loadHistory(ctx, id)
		if err != nil {
			return err
		}
		if err := f(h); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the newest migration of a volume on this host, nil if none.
func (m *Manager) newest(ctx context.Context, volumeID string) (*history, error) {
	ids, err := m.ids(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		h, err := m.loadHistory(ctx, id)
		if err != nil {
			return nil, err
		}
		if h.spec.VolumeID == volumeID {
			return h, nil
		}
	}
	return nil, nil
}

func (h *history) position() move.Position {
	s, at := &h.spec, move.OnSrc
	for i := range h.ops {
		o := &h.ops[i]
		switch {
		case o.goal == move.GoalStart && o.Committed && s.Method == move.MethodOverlay:
			at = move.OnOverlay
		case o.goal == move.GoalComplete && o.Committed:
			at = move.OnDst
		case o.goal == move.GoalCancel && o.Committed:
			at = move.OnSrc
		}
	}
	return at
}

func (h *history) chain() []api.Location {
	s := &h.spec
	switch h.position() {
	case move.OnOverlay:
		return append([]api.Location{{Path: s.Overlay, Format: api.FormatQcow2, SizeBytes: s.OverlayBytes()}}, withBases(s.Src)...)
	case move.OnDst:
		return withBases(s.Dst)
	case move.OnSrc, move.Foreign:
	}
	return withBases(s.Src)
}

// withBases returns the chain of a location, top first.
func withBases(l api.Location) []api.Location {
	chain := []api.Location{l}
	for _, b := range l.Backing.Images() {
		chain = append(chain, api.Location{Path: b.Path, Format: b.Format, SizeBytes: l.SizeBytes})
	}
	return chain
}
