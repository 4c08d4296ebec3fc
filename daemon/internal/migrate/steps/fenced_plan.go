// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/volferry/volferry/internal/op"
)

func stepNames(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// The steps that are done, or undone, without asking the registry first. Inside a pause
// nothing waits for the registry: the guest comes first, and what is done there is right
// whoever owns the volume. Steps that only release the instance are done in any case.
var (
	doneUnfenced   = stepNames("register", beginStep, toBegin.end, abortStep, toAbort.end, drainStep, compareStep, toDst.nameStep(), pivotStep, toSrc.nameStep())
	undoneUnfenced = stepNames("register", toBegin.begin, beginStep, toAbort.begin, toSwitch.begin, drainStep, compareStep, toDst.nameStep(), pivotStep, "guard", "hold", "commit")
)

// fenced makes the steps of a plan, up to its commit point, call StillOurs before they touch
// anything. After the commit point an op only goes forward: if the registry has ended the
// migration by then, the op ends where it is, and its other steps do nothing.
func (e *Env) fenced(p op.Plan) op.Plan {
	committed := false
	var behind []string // the names of the steps behind the commit point so far
	for i := range p.Steps {
		st := &p.Steps[i]
		if committed {
			unlessAbandoned(st, behind)
			behind = append(behind, st.Name)
		} else {
			st.Do, st.Undo = e.fencedDo(st), e.fencedUndo(st)
		}
		committed = committed || st.Name == p.Commit
	}
	return p
}

type rawFunc = func(context.Context, *op.Run) error

func (e *Env) fencedDo(st *op.Step) rawFunc {
	do := st.Do
	if doneUnfenced[st.Name] {
		return do
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err != nil {
			return err
		}
		if _, behind, _ := e.fence.behind(s); behind && (st.Name == toSwitch.begin || st.Name == toAbort.begin || st.Name == toBegin.begin) {
			// A halt would wait for a step that waits for the registry here.
			return &errWorldChanged{"this host was fenced"}
		}
		if err := e.StillOurs(ctx, s); err != nil {
			return err
		}
		return do(ctx, r)
	}
}

// fencedUndo is fencedDo for the undo of a step. An op whose migration was abandoned counts
// as undone.
func (e *Env) fencedUndo(st *op.Step) rawFunc {
	undo := st.Undo
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err == nil && !undoneUnfenced[st.Name] {
			err = e.StillOurs(ctx, s)
		}
		if err == nil {
			err = undo(ctx, r)
		}
		var abandoned *errAbandoned
		if errors.As(err, &abandoned) {
			return nil
		}
		return err
	}
}

// abandonedOutput is the note and the output of a step behind the commit point at which the op has
// found that the registry has ended its migration.
type abandonedOutput struct {
	Abandoned *op.Failure `json:"abandoned,omitempty"`
}

// unlessAbandoned makes a step behind the commit point do nothing once an earlier one has found the
// migration ended, and nothing more if it finds that itself: src and dst may belong to others by
// now. What is left is for the cancel that comes next (history.next).
func unlessAbandoned(st *op.Step, earlier []string) {
	name, do, observe := st.Name, st.Do, st.Observe
	over := func(r *op.Run) bool {
		var out abandonedOutput
		if _, err := r.Noted(name, &out); err == nil && out.Abandoned != nil {
			return r.SetOutput(out) == nil
		}
		return slices.ContainsFunc(earlier, func(name string) bool {
			_, err := r.Output(name, &out)
			return err == nil && out.Abandoned != nil
		})
	}
	st.Do = func(ctx context.Context, r *op.Run) error {
		if over(r) {
			return nil
		}
		err := do(ctx, r)
		var abandoned *errAbandoned
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
	if observe != nil {
		st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
			if over(r) {
				return op.Done, nil
			}
			return observe(ctx, r)
		}
	}
}

// AbandonedBehind is why the registry has ended the migration of an op that is done, if the op
// found that behind its commit point; nil if it did not.
func AbandonedBehind(st *op.Status) *op.Failure {
	for _, data := range st.Outputs {
		var out abandonedOutput
		if json.Unmarshal(data, &out) == nil && out.Abandoned != nil {
			return out.Abandoned
		}
	}
	return nil
}
