// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAnOpDoesTheStepsThatItsCallerHasChosen(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		plan := s.plan()
		chosen := op.Op{ID: "a", Kind: "k", Steps: plan.Choose("last", "first"), Commit: "last"}
		if err := s.runner.Submit(s.t.Context(), chosen); err != nil {
			t.Fatal(err)
		}
		st := s.wait("a", op.StateDone)
		s.wantTrace("last", "first")
		if !st.Committed || !st.Op.Has("first") || st.Op.Has("commit") {
			t.Errorf("the status is %+v", st)
		}
	})
}

func TestAnOpThatNamesNoStepsIsStoredWithTheNewestOfEach(t *testing.T) {
	bubble(t, func(s *stage) {
		s.restart()
		newest := s.first
		newest.Version = 3
		s.runner.Register(op.Plan{Kind: "versions", Steps: []op.Step{s.first, newest, s.commit}, Commit: "commit"})
		if err := s.runner.Resume(s.t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "versions"}); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		o, err := s.journal.Op(s.t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]op.StepRef{{Name: "first", Version: 3}, {Name: "commit"}}, o.Steps); diff != "" || o.Commit != "commit" {
			t.Errorf("stored with commit point %q and steps (-want +got)\n%s", o.Commit, diff)
		}
	})
}

func TestAnOpThatIsSubmittedAgainKeepsItsSteps(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		s.journal.FailNext(true) // the op is stored, and its first record is in doubt
		s.submit("a")
		plan := s.plan()
		if err := s.runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "k", Steps: plan.Choose("last")}); err != nil {
			t.Fatal(err)
		}
		s.wait("a", op.StateDone)
		s.wantTrace("first", "commit", "last")
	})
}

// The program before an upgrade can still bring the op to its end.
func TestAProgramThatLacksAStepOfAnOpTouchesNothing(t *testing.T) {
	for name, lacking := range map[string]func(*op.Plan){
		"no such step":    func(p *op.Plan) { p.Steps = p.Steps[:2] },
		"another version": func(p *op.Plan) { p.Steps[2].Version = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stage) {
				do := s.first.Do
				s.first.Do = untilCancelled
				s.start()
				s.submit("a")
				synctest.Wait()
				before := s.kinds("a")
				s.stop()
				plan := s.plan()
				plan.Steps = slices.Clone(plan.Steps)
				lacking(&plan)
				next, err := op.New(op.Config{Journal: s.journal})
				if err != nil {
					t.Fatal(err)
				}
				next.Register(plan)
				if err := next.Resume(s.t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				st, err := next.Status(s.t.Context(), "a")
				if err != nil || st.State != op.StateNeedsOperator || !strings.Contains(st.Failure.Message, "lacks step last") {
					t.Errorf("the op is %+v (%v)", st, err)
				}
				if err := next.Continue(s.t.Context(), "a"); !errors.Is(err, op.ErrHistory) {
					t.Errorf("continue: got %v, want ErrHistory", err)
				}
				next.Stop()
				s.wantTrace()
				if diff := cmp.Diff(before, s.kinds("a")); diff != "" {
					t.Errorf("records (-before +after)\n%s", diff)
				}
				s.first.Do = do
				s.start()
				s.wait("a", op.StateDone)
				s.wantTrace("first", "commit", "last")
			})
		})
	}
}

func TestAnOpIsRefusedWhoseStoredStepsContradictEachOther(t *testing.T) {
	plan := op.Plan{Kind: "k", Steps: []op.Step{{Name: "a", Do: untilCancelled}, {Name: "a", Version: 1, Do: untilCancelled}, {Name: "b", Do: untilCancelled}}}
	for name, o := range map[string]op.Op{
		"no steps":                   {Kind: "k"},
		"a step twice":               {Kind: "k", Steps: plan.Choose("b", "b")},
		"two versions of a step":     {Kind: "k", Steps: []op.StepRef{{Name: "a"}, {Name: "a", Version: 1}}},
		"a commit point elsewhere":   {Kind: "k", Steps: plan.Choose("a"), Commit: "b"},
		"a version that nobody made": {Kind: "k", Steps: []op.StepRef{{Name: "b", Version: 7}}},
	} {
		if _, err := plan.Of(&o); !errors.Is(err, op.ErrHistory) {
			t.Errorf("%s: got %v, want ErrHistory", name, err)
		}
	}
}

func TestAStepSeesWhetherItsOpIsCommitted(t *testing.T) {
	bubble(t, func(s *stage) {
		seen := map[string]bool{}
		for _, st := range []*op.Step{&s.first, &s.commit, &s.last} {
			st.Do = func(_ context.Context, r *op.Run) error { seen[st.Name] = r.Committed(); return nil }
		}
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		if diff := cmp.Diff(map[string]bool{"first": false, "commit": false, "last": true}, seen); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
