// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
)

// Observation is the answer of Observe: did the step happen?
type Observation int

// The three answers. Unknown stops the op and calls the operator, because acting on a guess
// destroys data.
const (
	NotDone Observation = iota
	Done
	Unknown
)

// Step is one part of an op: an effect, its reverse, and a check of whether the effect took place.
// Each must bear repetition after it ran to its end or to any point before.
type Step struct {
	// Name is stable, because journals on disk contain it. An op with a recorded step that the plan
	// lacks waits for the operator.
	Name string
	// Do makes the effect. The step's output in the journal is the value that Do or Observe passed
	// to Run.SetOutput.
	Do func(ctx context.Context, r *Run) error
	// Undo reverses Do, complete or partial. Nil: there is nothing to reverse.
	Undo func(ctx context.Context, r *Run) error
	// Observe checks whether the step happened. The runner calls it before a Do that may be a
	// repetition, and after every Do, regardless of Do's result (except with Verifies). If Do
	// reports success and Observe reports NotDone, Do is tried again. An error means that Observe
	// cannot tell now; its type counts as for Do. Nil, for steps that only check: the result of Do
	// counts.
	Observe func(ctx context.Context, r *Run) (Observation, error)
	// Verifies: after its effect, Do itself checks the state that Observe checks, and returns nil
	// only if the effect is there. Then Observe is not called after Do: a paused guest waits for
	// each check.
	Verifies bool
	// Critical steps that follow each other form a critical section. From the start of its first
	// step, a halt does not stop the op until the section ends or that step is undone: a halt may
	// last long, and the guest is paused in the section. A crash and Stop can end an op anywhere.
	Critical bool
}

// Plan is an op kind: its steps in order and its commit point.
type Plan struct {
	Kind  string
	Steps []Step
	// Commit names the step that commits the op when it succeeds: before that a permanent error
	// undoes all steps in reverse order, afterwards the op only goes forward. Empty: the op can be
	// undone until its end.
	Commit string
}

// Validate returns the first error of a plan: no kind or steps, a step without name or Do, a
// duplicate name, an unknown commit point.
func (p *Plan) Validate() error {
	if p.Kind == "" || len(p.Steps) == 0 {
		return errors.New("a plan needs a kind and at least one step")
	}
	seen := map[string]bool{}
	for _, s := range p.Steps {
		if s.Name == "" || s.Do == nil {
			return fmt.Errorf("plan %s: a step needs a name and a Do", p.Kind)
		}
		if seen[s.Name] {
			return fmt.Errorf("plan %s: two steps are named %s", p.Kind, s.Name)
		}
		seen[s.Name] = true
	}
	if p.Commit != "" && !seen[p.Commit] {
		return fmt.Errorf("plan %s: its commit point %s is none of its steps", p.Kind, p.Commit)
	}
	return nil
}

// index returns the position of a step, or -1.
func (p *Plan) index(name string) int {
	for i := range p.Steps {
		if p.Steps[i].Name == name {
			return i
		}
	}
	return -1
}
