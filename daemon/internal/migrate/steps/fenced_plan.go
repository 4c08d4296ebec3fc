// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

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
	doneUnfenced   = stepNames("register", beginStep, toBegin.end, abortStep, toAbort.end, "drain", "compare", "name_"+string(OnDst), "pivot", "name_"+string(OnSrc))
	undoneUnfenced = stepNames("register", toBegin.begin, beginStep, toAbort.begin, toSwitch.begin, "drain", "compare", "name_"+string(OnDst), "pivot", "guard", "hold", "commit")
)

// fenced makes the steps of a plan, up to its commit point, call StillOurs before they touch
// anything. After the commit point an op only goes forward: if the registry has ended the
// migration by then, a person has to look.
func (e *Env) fenced(p op.Plan) op.Plan {
	committed := false
	for i := range p.Steps {
		st := &p.Steps[i]
		if committed {
			st.Do = orNeedsOperator(st.Do)
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

func orNeedsOperator(do rawFunc) rawFunc {
	return func(ctx context.Context, r *op.Run) error {
		err := do(ctx, r)
		var abandoned *errAbandoned
		if errors.As(err, &abandoned) {
			return op.UnknownOutcome(err)
		}
		return err
	}
}
