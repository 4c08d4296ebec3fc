// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Op is an op of a migration. RequestID is the id of its request, and Why the reason of a cancel
// that the manager itself submitted.
type Op struct {
	op.Status

	Goal      move.Goal
	RequestID string
	Why       *api.Error
}

// Undone reports whether the op has ended undone.
func (o *Op) Undone() bool { return o.State == op.StateUndone }

func (o *Op) overtaken() bool {
	return o.Undone() && move.Overtaken(o.Failure)
}

func (o *Op) ended() *op.Failure {
	if is, _ := move.Abandoned(o.Failure); o.Undone() && is {
		return o.Failure
	}
	if o.State != op.StateDone {
		return nil
	}
	behind := plans.AbandonedBehind(&o.Status)
	if _, kept := move.Abandoned(behind); kept && o.Goal == move.GoalCancel {
		return nil // the guest is already on src
	}
	return behind
}

func (o *Op) abandoned() bool { return o.ended() != nil }

// Abandoned returns why the registry has ended the migration, or nil.
func (h *Migration) Abandoned() *api.Error {
	for i := range h.Ops {
		if ended := h.Ops[i].ended(); ended != nil {
			return move.APIError(ended)
		}
	}
	return nil
}

// KeptSrc reports whether the overlay of a migration that the registry has ended has to be folded
// into src: the instance still had src then, and its guest was on the overlay. The overlay of a
// guest that was switched to dst, or brought back to src, has nothing newer.
func (h *Migration) KeptSrc() bool {
	for _, o := range slices.Backward(h.Ops) {
		if ended := o.ended(); ended != nil {
			_, kept := move.Abandoned(ended)
			return kept && h.Position() == move.OnOverlay
		}
	}
	return false
}

// LeavesChain reports whether the op never changes its guest's chain: then only another program
// can have changed it.
func (o *Op) LeavesChain() bool { return o.Goal == move.GoalCopy && o.Op.Has(transfer.CopyStep) }

// BeginsMirror reports whether the op only begins a mirror, with the guest suspended.
func (o *Op) BeginsMirror() bool { return o.Goal == move.GoalCopy && o.Op.Has(pause.BeginStep) }

func (o *Op) mirrors() bool {
	return o.Goal == move.GoalCopy && (o.Op.Has(blockjob.MirrorStep) || o.BeginsMirror())
}

func (o *Op) failedWith(code api.Code) bool {
	return o.Undone() && o.Failure != nil && o.Failure.Code == string(code)
}

// Migration is a migration's spec and its ops, oldest first. Its methods are pure.
type Migration struct {
	Spec move.Spec
	Ops  []Op
}

// Load reads a migration from the journal, or returns an *api.Error with not_found.
func (r *Reader) Load(ctx context.Context, id string) (*Migration, error) {
	ops, err := r.Journal.Group(ctx, id)
	if err != nil {
		return nil, request.JournalError(err)
	}
	if len(ops) == 0 {
		return nil, api.NotFoundHere("migration", id)
	}
	h := &Migration{}
	for i, o := range ops {
		var in move.Input
		if err := json.Unmarshal(o.Input, &in); err != nil {
			return nil, fmt.Errorf("decode the input of op %s: %w", o.ID, err)
		}
		if i == 0 {
			h.Spec = in.Spec
		}
		st, err := r.Runner.Status(ctx, o.ID)
		if err != nil {
			return nil, request.JournalError(err)
		}
		h.Ops = append(h.Ops, Op{Status: st, Goal: move.GoalOf(o.Kind), RequestID: in.RequestID, Why: in.Why})
	}
	return h, nil
}

// CopiedBefore reports whether one of the first i ops finished the built-in copy.
func (h *Migration) CopiedBefore(i int) bool {
	return slices.ContainsFunc(h.Ops[:i], func(o Op) bool {
		return o.Goal == move.GoalCopy && !o.BeginsMirror() && o.State == op.StateDone
	})
}

// CopiedBytes returns how many bytes are copied, if no copy runs now.
func (h *Migration) CopiedBytes() int64 {
	if h.CopiedBefore(len(h.Ops)) {
		return h.Spec.SizeBytes()
	}
	for _, o := range slices.Backward(h.Ops) {
		if n, known := transfer.CopiedBytes(&o.Status); known {
			return n
		}
	}
	return 0
}

// Running returns the newest unfinished op, or nil.
func (h *Migration) Running() *Op {
	for i := len(h.Ops) - 1; i >= 0; i-- {
		if !h.Ops[i].State.Final() {
			return &h.Ops[i]
		}
	}
	return nil
}

// Find returns the newest op with a goal, or nil.
func (h *Migration) Find(g move.Goal) *Op {
	for i := len(h.Ops) - 1; i >= 0; i-- {
		if h.Ops[i].Goal == g {
			return &h.Ops[i]
		}
	}
	return nil
}

// Op returns the migration's op with this id.
func (h *Migration) Op(id string) *Op {
	return &h.Ops[slices.IndexFunc(h.Ops, func(o Op) bool { return o.Op.ID == id })]
}

// IDs returns the ids of this host's migrations, oldest first.
func (r *Reader) IDs(ctx context.Context) ([]string, error) {
	ops, err := r.Starts(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = o.Group
	}
	return ids, nil
}

// Starts returns the first op of each migration, oldest first.
func (r *Reader) Starts(ctx context.Context) ([]op.Op, error) {
	var ops []op.Op
	for _, kind := range []string{move.KindStart, move.KindCopySaved, move.KindMakeLive} {
		more, err := r.Journal.Ops(ctx, kind, false)
		if err != nil {
			return nil, request.JournalError(err)
		}
		ops = append(ops, more...)
	}
	sortByAge(ops)
	return ops, nil
}

// SpecOf returns the spec of a migration from its first op.
func SpecOf(start op.Op) (move.Spec, error) {
	var in move.Input
	if err := json.Unmarshal(start.Input, &in); err != nil {
		return move.Spec{}, fmt.Errorf("decode the input of op %s: %w", start.ID, err)
	}
	return in.Spec, nil
}

func sortByAge(ops []op.Op) {
	slices.SortStableFunc(ops, func(a, b op.Op) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// EachOpen calls f for each migration that is not known to have ended (NoteEnded), until f returns
// an error.
func (r *Reader) EachOpen(ctx context.Context, f func(*Migration) error) error {
	ids, err := r.IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if r.HasEnded(id) {
			continue
		}
		h, err := r.Load(ctx, id)
		if err != nil {
			return err
		}
		if err := f(h); err != nil {
			return err
		}
	}
	return nil
}

// HasEnded reports whether NoteEnded was called for a migration.
func (r *Reader) HasEnded(id string) bool {
	_, ended := r.ended.Load(id)
	return ended
}

// NoteEnded records that a migration has ended.
func (r *Reader) NoteEnded(id string) { r.ended.Store(id, nil) }

// Resolve returns the id of the migration with this id, or of the only migration with an id that
// begins with name.
func (r *Reader) Resolve(ctx context.Context, name string) (string, error) {
	ids, err := r.IDs(ctx)
	if err != nil {
		return "", err
	}
	found := api.Lookup(ids, name, func(id *string) (string, string) { return *id, "" })
	switch len(found) {
	case 0:
		return "", api.NotFoundHere("migration", name)
	case 1:
		return found[0], nil
	}
	return "", api.Errorf(api.CodeInvalidArgument, "%s could be any of the migrations %s", name, strings.Join(found, ", "))
}

// Newest returns this host's newest migration of a volume, or nil.
func (r *Reader) Newest(ctx context.Context, volumeID string) (*Migration, error) {
	ids, err := r.IDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		h, err := r.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		if h.Spec.VolumeID == volumeID {
			return h, nil
		}
	}
	return nil, nil
}

// Position returns where the guest's newest writes are, according to the journal.
func (h *Migration) Position() move.Position {
	s, at := &h.Spec, move.OnSrc
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.Goal == move.GoalStart && o.Committed && s.Method == move.MethodOverlay:
			at = move.OnOverlay
		case o.Goal == move.GoalComplete && o.Committed:
			at = move.OnDst
		case o.Goal == move.GoalCancel && o.Committed:
			at = move.OnSrc
		}
	}
	return at
}

// Chain returns the chain with the guest's newest writes (Position), top first.
func (h *Migration) Chain() []api.Location {
	s := &h.Spec
	switch h.Position() {
	case move.OnOverlay:
		return append([]api.Location{{Path: s.Overlay, Format: api.FormatQcow2, SizeBytes: s.OverlayBytes()}}, WithBases(s.Src)...)
	case move.OnDst:
		return WithBases(s.Dst)
	case move.OnSrc, move.Foreign:
	}
	return WithBases(s.Src)
}

// WithBases returns the image at a location and its base images, top first.
func WithBases(l api.Location) []api.Location {
	chain := []api.Location{l}
	for _, b := range l.Backing.Images() {
		chain = append(chain, api.Location{Path: b.Path, Format: b.Format, SizeBytes: l.SizeBytes})
	}
	return chain
}

// Sequence returns the number of a migration's journal records, which grows with each change.
func (r *Reader) Sequence(ctx context.Context, h *Migration) (int64, error) {
	var n int64
	for i := range h.Ops {
		records, err := r.Journal.Records(ctx, h.Ops[i].Op.ID)
		if err != nil {
			return 0, request.JournalError(err)
		}
		n += int64(len(records))
	}
	return n, nil
}

// ContinueParked continues an op that waits for the operator. The call shows that the operator has
// looked; an op that still finds an unknown state stops again.
func (r *Reader) ContinueParked(ctx context.Context, o *Op) error {
	if o.State != op.StateNeedsOperator {
		return nil
	}
	if err := r.Runner.Continue(ctx, o.Op.ID); err != nil && !errors.Is(err, op.ErrNotParked) {
		return request.JournalError(err)
	}
	return nil
}
