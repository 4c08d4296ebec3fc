// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is a World: the boxes of a room are packed and moved to another one. Its fields survive a
// crash of the daemon.
type room struct {
	doorOpen bool
	wasOpen  bool
	boxes    int
	moved    bool
	notified int

	// change breaks the plan in some way.
	change func(w *room, steps map[string]*op.Step)
}

func (w *room) Op() op.Op {
	return op.Op{ID: "op-1", Kind: "move", Keys: []string{"room/1"}, Input: json.RawMessage(`{"to":"b"}`)}
}

func (w *room) Check(state op.State) error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	done := state == op.StateDone
	want(w.doorOpen == w.wasOpen, "the door is not as it was")
	want(w.boxes == 0, "%d boxes are left", w.boxes)
	want(w.moved == done, "moved is %v", w.moved)
	want(done == (w.notified == 1), "notified %d times", w.notified)
	return errors.Join(errs...)
}

func observed(happened bool) op.Observation {
	if happened {
		return op.Done
	}
	return op.NotDone
}

// Plans has a step that only checks, a step that notes a fact before it destroys it, a step with an
// output, a commit point, and two steps after it.
func (w *room) Plans() []op.Plan {
	type door struct{ Open bool }
	steps := []op.Step{{
		Name: "look",
		Do:   func(_ context.Context, r *op.Run) error { return r.SetOutput("seen") },
	}, {
		Name: "open",
		Do: func(ctx context.Context, r *op.Run) error {
			if known, err := r.Noted("open", &door{}); err != nil || !known {
				if err := errors.Join(err, r.Note(ctx, door{w.doorOpen})); err != nil {
					return err
				}
			}
			w.doorOpen = true
			return nil
		},
		Undo:    func(_ context.Context, r *op.Run) error { return w.restoreDoor(r) },
		Observe: func(context.Context, *op.Run) (op.Observation, error) { return observed(w.doorOpen), nil },
	}, {
		Name: "pack",
		Do: func(context.Context, *op.Run) error {
			w.boxes = 1
			return nil
		},
		Undo: func(context.Context, *op.Run) error {
			w.boxes = 0
			return nil
		},
		Observe: func(_ context.Context, r *op.Run) (op.Observation, error) {
			return observed(w.boxes > 0), r.SetOutput(w.boxes)
		},
	}, {
		Name: "carry",
		Do: func(context.Context, *op.Run) error {
			w.moved = true
			return nil
		},
		Undo: func(context.Context, *op.Run) error {
			w.moved = false
			return nil
		},
		Observe: func(context.Context, *op.Run) (op.Observation, error) { return observed(w.moved), nil },
	}, {
		Name: "tell",
		Do: func(_ context.Context, r *op.Run) error {
			var boxes int
			if ok, err := r.Output("pack", &boxes); err != nil || !ok || boxes != 1 {
				return fmt.Errorf("%d boxes were packed: %w", boxes, err)
			}
			w.notified = 1
			return nil
		},
	}, {
		Name: "tidy",
		Do: func(_ context.Context, r *op.Run) error {
			w.boxes = 0
			return w.restoreDoor(r)
		},
		Observe: func(context.Context, *op.Run) (op.Observation, error) {
			return observed(w.boxes == 0 && w.doorOpen == w.wasOpen), nil
		},
	}}
	if w.change != nil {
		byName := map[string]*op.Step{}
		for i := range steps {
			byName[steps[i].Name] = &steps[i]
		}
		w.change(w, byName)
	}
	return []op.Plan{{Kind: "move", Steps: steps, Commit: "carry"}}
}

func (w *room) restoreDoor(r *op.Run) error {
	var was struct{ Open bool }
	known, err := r.Noted("open", &was)
	if err == nil && known {
		w.doorOpen = was.Open
	}
	return err
}

func TestMatrixOfAGoodPlan(t *testing.T) {
	Matrix(t, Subject{New: func(*testing.T) World { return &room{} }})
}

func TestMatrixOfAPlanWhoseStepMayHaveNothingToDo(t *testing.T) {
	Matrix(t, Subject{New: func(*testing.T) World { return &room{doorOpen: true, wasOpen: true} }})
}

// faultPoints returns the names of the FaultPoint calls for ops of this plan. Steps after the
// commit point have no moments of undoing.
func faultPoints(plan op.Plan) []string {
	names, reversible := []string{plan.Kind + ".finished"}, true
	for _, s := range plan.Steps {
		moments := []string{"before_started", "after_started", "after_do", "after_succeeded"}
		if reversible {
			moments = append(moments, "before_undo_started", "after_undo_started", "after_undo", "after_undone")
		}
		for _, m := range moments {
			names = append(names, point(plan, s, m))
		}
		reversible = reversible && s.Name != plan.Commit
	}
	return names
}

func TestMatrixCoversEveryStepPointAndRecord(t *testing.T) {
	s := Subject{New: func(*testing.T) World { return &room{} }}
	names := map[string]bool{}
	for _, tr := range s.trials(t) {
		if names[tr.name] {
			t.Errorf("two trials are named %s", tr.name)
		}
		names[tr.name] = true
	}
	for _, p := range faultPoints((&room{}).Plans()[0]) {
		if !names["crash/"+p] && !names["crash_undoing/"+p] {
			t.Errorf("no crash at %s", p)
		}
	}
	for _, name := range []string{
		"twice/tidy", "fails_before/look", "fails_after/tell", "undo_twice/open", "undo_fails/carry",
		"cut/03_open_started", "cut/04_open_noted", "cut_undoing/09_carry_failed",
		"append_lost/14__finished", "append_stored/04_open_noted", "append_lost_undoing/10_carry_undo_started",
	} {
		if !names[name] {
			t.Errorf("no trial %s", name)
		}
	}
}

// TestMatrixFindsBrokenPlans breaks the plan in typical ways, and expects the matching trial to
// fail.
func TestMatrixFindsBrokenPlans(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *room, steps map[string]*op.Step)
		trial  string
	}{
		{"an Undo that leaves something", func(_ *room, steps map[string]*op.Step) {
			steps["pack"].Undo = nil
		}, "fails_before/carry"},
		{"an Undo that cannot run twice", func(w *room, steps map[string]*op.Step) {
			steps["pack"].Undo = func(context.Context, *op.Run) error { w.boxes--; return nil }
		}, "undo_twice/pack"},
		{"an Undo that needs the whole effect", func(w *room, steps map[string]*op.Step) {
			steps["pack"].Undo = func(context.Context, *op.Run) error { w.boxes--; return nil }
		}, "fails_before/pack"},
		{"a Do that is not repeatable", func(w *room, steps map[string]*op.Step) {
			steps["tell"].Do = func(context.Context, *op.Run) error { w.notified++; return nil }
		}, "twice/tell"},
		{"a Do that is not repeatable, under an Observe", func(w *room, steps map[string]*op.Step) {
			steps["pack"].Do = func(context.Context, *op.Run) error { w.boxes++; return nil }
		}, "twice/pack"},
		{"an Observe that always says done", func(_ *room, steps map[string]*op.Step) {
			steps["carry"].Observe = func(context.Context, *op.Run) (op.Observation, error) { return op.Done, nil }
		}, "fails_before/carry"},
		{"an Observe that never says done", func(_ *room, steps map[string]*op.Step) {
			steps["pack"].Observe = func(context.Context, *op.Run) (op.Observation, error) { return op.NotDone, nil }
		}, "ends"},
		{"a note that is overwritten by a repeated Do", func(w *room, steps map[string]*op.Step) {
			steps["open"].Do = func(ctx context.Context, r *op.Run) error {
				if err := r.Note(ctx, struct{ Open bool }{w.doorOpen}); err != nil {
					return err
				}
				w.doorOpen = true
				return nil
			}
		}, "twice/open"},
		{"a fact that is kept in memory", func(w *room, steps map[string]*op.Step) {
			var was bool
			steps["open"].Do = func(context.Context, *op.Run) error {
				was, w.doorOpen = w.doorOpen, true
				return nil
			}
			steps["open"].Undo = func(context.Context, *op.Run) error { w.doorOpen = was; return nil }
			steps["tidy"].Do = func(context.Context, *op.Run) error {
				w.boxes, w.doorOpen = 0, was
				return nil
			}
		}, "twice/open"},
		{"an effect although its note was not taken", func(w *room, steps map[string]*op.Step) {
			do := steps["open"].Do
			steps["open"].Do = func(ctx context.Context, r *op.Run) error {
				err := do(ctx, r)
				w.doorOpen = true
				return err
			}
		}, "append_lost/04_open_noted"},
		{"an output that a crash loses", func(w *room, steps map[string]*op.Step) {
			steps["pack"].Do = func(_ context.Context, r *op.Run) error {
				w.boxes = 1
				return r.SetOutput(w.boxes)
			}
			steps["pack"].Observe = func(context.Context, *op.Run) (op.Observation, error) { return observed(w.boxes > 0), nil }
		}, "crash/move.pack.after_do"},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := Problems(t, Subject{New: func(*testing.T) World { return &room{change: c.change} }})
			for _, p := range problems {
				if p.Trial == c.trial {
					t.Logf("found: %v", p.Err)
					return
				}
			}
			t.Errorf("trial %s found nothing; the problems are %v", c.trial, problems)
		})
	}
}
