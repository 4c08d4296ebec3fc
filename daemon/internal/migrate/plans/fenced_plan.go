// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/op"
)

func stepNames(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// These steps are done, or undone, without asking the registry first. While the guest is paused no
// step waits for the registry: the guest has priority, and the step does no harm if the volume has
// another owner. Steps that only release the instance never ask.
var (
	doneUnfenced   = stepNames("register", pause.BeginStep, pause.ToBegin.End, pause.AbortStep, move.ToAbort.End, pause.DrainStep, move.CompareStep, overlay.NameDstStep, overlay.PivotStep, overlay.NameDstAfterPivotStep, overlay.NameDstWhileOffStep, overlay.NameSrcStep)
	undoneUnfenced = stepNames("register", pause.ToBegin.Begin, pause.BeginStep, move.ToAbort.Begin, move.ToSwitch.Begin, pause.DrainStep, move.CompareStep, overlay.NameDstStep, overlay.NameDstWhileOffStep, overlay.PivotStep, "guard", overlay.KeepOffStep, "commit")
)

// fenceSteps makes the steps call StillOurs before they touch an image, until their op is
// committed. If a step after the commit point finds that the registry has ended the migration, the
// op's other steps do nothing.
func (e *Env) fenceSteps(steps []op.Step) {
	for i := range steps {
		st := &steps[i]
		fenced, unlessAbandoned := e.fencedDo(st), unlessAbandoned(st)
		st.Undo = e.fencedUndo(st)
		st.Do = func(ctx context.Context, r *op.Run) error {
			if r.Committed() {
				return unlessAbandoned(ctx, r)
			}
			return fenced(ctx, r)
		}
		if observe := st.Observe; observe != nil {
			st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
				if over, err := foundAbandoned(r, st.Name); over || err != nil {
					return op.Done, err
				}
				return observe(ctx, r)
			}
		}
	}
}

type rawFunc = func(context.Context, *op.Run) error

func (e *Env) fencedDo(st *op.Step) rawFunc {
	do := st.Do
	if doneUnfenced[st.Name] {
		return do
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err != nil {
			return err
		}
		if _, behind, _ := e.fence.Behind(s); behind && (st.Name == move.ToSwitch.Begin || st.Name == move.ToAbort.Begin || st.Name == pause.ToBegin.Begin) {
			// Halt waits for a critical step, and this step would wait for the registry.
			return &move.WorldChangedError{What: "this host was fenced"}
		}
		if err := e.Move.StillOurs(ctx, s); err != nil {
			return err
		}
		return do(ctx, r)
	}
}

// fencedUndo wraps the undo of a step as fencedDo wraps its Do. The undo of an abandoned migration
// counts as done.
func (e *Env) fencedUndo(st *op.Step) rawFunc {
	undo := st.Undo
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err == nil && !undoneUnfenced[st.Name] {
			err = e.Move.StillOurs(ctx, s)
		}
		if err == nil {
			err = undo(ctx, r)
		}
		var abandoned *move.AbandonedError
		if errors.As(err, &abandoned) {
			return nil
		}
		return err
	}
}

// abandonedOutput is the note and the output of a step after the commit point that found that the
// registry has ended the migration.
type abandonedOutput struct {
	Abandoned *op.Failure `json:"abandoned,omitempty"`
}

// unlessAbandoned returns the Do of a step after the commit point. It does nothing if an earlier
// step has found that the registry has ended the migration, and stops if this step finds that: src
// and dst may belong to other volumes. The following cancel does the rest (history.Next).
func unlessAbandoned(st *op.Step) rawFunc {
	name, do := st.Name, st.Do
	return func(ctx context.Context, r *op.Run) error {
		if over, err := foundAbandoned(r, name); over || err != nil {
			return err
		}
		err := do(ctx, r)
		var abandoned *move.AbandonedError
		if !errors.As(err, &abandoned) {
			return err
		}
		failure := abandoned.Failure()
		out := abandonedOutput{&failure}
		if err := r.Note(ctx, out); err != nil {
			return err
		}
		return r.SetOutput(out)
	}
}

// foundAbandoned reports whether this step, or an earlier one after the commit point, has found
// that the registry has ended the migration. If this step has noted that, the note becomes its
// output.
func foundAbandoned(r *op.Run, step string) (bool, error) {
	var out abandonedOutput
	if _, err := r.Noted(step, &out); err == nil && out.Abandoned != nil {
		return true, r.SetOutput(out)
	}
	return abandonedIn(r.Outputs()) != nil, nil
}

// AbandonedBehind returns why the registry has ended the migration, if the op has found that after
// its commit point; otherwise nil.
func AbandonedBehind(st *op.Status) *op.Failure {
	return abandonedIn(st.Outputs)
}

func abandonedIn(outputs map[string]json.RawMessage) *op.Failure {
	for _, data := range outputs {
		var out abandonedOutput
		if json.Unmarshal(data, &out) == nil && out.Abandoned != nil {
			return out.Abandoned
		}
	}
	return nil
}
