// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

func (s Subject) trials(t *testing.T) []trial {
	t.Helper()
	plan := s.plan(t)
	smooth := trial{name: "ends", want: []op.State{op.StateDone}}
	all := []trial{smooth}
	for i, step := range plan.Steps {
		all = append(all, stepTrials(plan, i, step)...)
	}
	if o, err := s.run(t, smooth); err == nil {
		all = append(all, crashTrials("", smooth, o)...)
	}
	if broken, o, ok := s.findUndone(t, plan); ok {
		all = append(all, undoTrials(plan, broken)...)
		all = append(all, crashTrials("_undoing", broken, o)...)
	}
	return all
}

func stepTrials(plan op.Plan, i int, step op.Step) []trial {
	before := trial{name: "fails_before/" + step.Name, fail: step.Name}
	after := trial{name: "fails_after/" + step.Name, fail: step.Name, failAfter: true}
	switch {
	case i > commitIndex(plan):
		before.want, before.mayPark = []op.State{op.StateDone}, true
		after.want, after.mayPark = before.want, true
	case step.Observe == nil:
		before.want = []op.State{op.StateUndone}
		after.want = before.want
	default:
		// If the step had nothing to do, Observe reports Done.
		before.want = []op.State{op.StateUndone, op.StateDone}
		after.want = before.want
	}
	return []trial{before, after, {
		name:        "twice/" + step.Name,
		want:        []op.State{op.StateDone},
		killAtPoint: point(plan, step, "after_do"),
		forget:      step.Name,
	}}
}

// findUndone finds the last step that undoes the op when it fails, so that undoing does the most.
func (s Subject) findUndone(t *testing.T, plan op.Plan) (trial, outcome, bool) {
	for i := min(commitIndex(plan), len(plan.Steps)-1); i >= 0; i-- {
		tr := trial{fail: plan.Steps[i].Name, want: []op.State{op.StateUndone}}
		if o, err := s.run(t, tr); err == nil {
			return tr, o, true
		}
	}
	return trial{}, outcome{}, false
}

func undoTrials(plan op.Plan, broken trial) []trial {
	var all []trial
	for _, step := range plan.Steps {
		twice := broken
		twice.name = "undo_twice/" + step.Name
		twice.killAtPoint = point(plan, step, "after_undo")
		all = append(all, twice)
		if step.Undo != nil {
			stuck := broken
			stuck.name = "undo_fails/" + step.Name
			stuck.failUndo, stuck.mayPark = step.Name, true
			all = append(all, stuck)
		}
		if step.Name == broken.fail {
			break
		}
	}
	return all
}

func crashTrials(suffix string, base trial, o outcome) []trial {
	var all []trial
	add := func(name string, change func(*trial)) {
		tr := base
		tr.name = name
		change(&tr)
		all = append(all, tr)
	}
	for _, p := range o.points {
		add("crash"+suffix+"/"+p, func(tr *trial) { tr.killAtPoint = p })
	}
	for _, r := range o.records {
		label := fmt.Sprintf("%s/%02d_%s_%s", suffix, r.Seq, r.Step, r.Kind)
		add("cut"+label, func(tr *trial) { tr.killAfterRecord = r.Seq })
		add("append_lost"+label, func(tr *trial) { tr.failAppend = int(r.Seq) })
		add("append_stored"+label, func(tr *trial) { tr.failAppend, tr.stored = int(r.Seq), true })
	}
	return all
}

// commitIndex returns the index of the commit point, or the number of steps if the plan has none.
func commitIndex(plan op.Plan) int {
	for i, s := range plan.Steps {
		if s.Name == plan.Commit {
			return i
		}
	}
	return len(plan.Steps)
}

func point(plan op.Plan, step op.Step, moment string) string {
	return plan.Kind + "." + step.Name + "." + moment
}

func (s Subject) plan(t *testing.T) op.Plan {
	t.Helper()
	w := s.New(t)
	kind := w.Op().Kind
	for _, p := range w.Plans() {
		if p.Kind == kind {
			return ofOp(t, p, w.Op())
		}
	}
	t.Fatalf("the world has no plan for its op's kind %q", kind)
	return op.Plan{}
}

func ofOp(t *testing.T, kind op.Plan, o op.Op) op.Plan {
	t.Helper()
	if len(o.Steps) == 0 {
		o.Steps, o.Commit = kind.Refs(), kind.Commit
	}
	plan, err := kind.Of(&o)
	if err != nil {
		t.Fatal(err)
	}
	return *plan
}
