// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
)

// Observation is the answer to "did it happen?".
type Observation int

// The three answers. Unknown is an answer too: it stops the op and calls the
// operator, because acting on a guess destroys data.
const (
	NotDone Observation = iota
	Done
	Unknown
)

// Step is one part of an op: an effect, its reverse, and the question whether
// it took place. All three must bear being called again after having run to
// the end or to any point in the middle.
type Step struct {
	// Name is stable, because journals on disk contain it. An op whose journal names a step
	// that the plan does not have waits for the operator.
	Name string
	// Do makes the effect. The output of a step in the journal is what Do or Observe gave
	// to Run.SetOutput.
	Do func(ctx context.Context, r *Run) error
	// Undo reverses Do, wholly or half done. Nil: there is nothing to reverse.
	Undo func(ctx context.Context, r *Run) error
	// Observe looks at the world. It is asked before a Do that may be a repeat, and after
	// every Do, whatever Do returned: the world decides, not the return value (but see
	// Verifies). If Observe does not see what Do says it did, Do is tried again. Nil, for steps
	// that only check: Do's answer counts. An error means "cannot look now" and is treated by
	// its type like Do's.
	Observe func(ctx context.Context, r *Run) (Observation, error)
	// Verifies: Do looks itself, behind its effect, at what Observe looks at, and returns nil
	// only if it is there. Then Observe is not asked behind it: a guest that is paused waits for
	// each look.
	Verifies bool
	// Critical steps that follow each other are a critical section. A halt does not stop
	// the op from the beginning of the section's first step until the section ends or that
	// step is undone: the world must not be left in between (a guest is paused), since a
	// halt may last long. A crash and Stop can end an op anywhere.
	// Where two of them meet, one commit of the journal has the end of the one and the
	// beginning of the other.
	Critical bool
}

// Plan is an op kind: its steps in order and its commit point.
type Plan struct {
	Kind  string
	Steps []Step
	// Commit names the step whose success is the commit point: before it a permanent error
	// undoes all steps backwards, after it the op only goes forward. Empty: the op can be
	// undone up to its end.
	Commit string
}

// Validate reports the first thing that is wrong with a plan: no steps, a name
// that is empty or used twice, a step without Do, an unknown commit point.
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

// index returns the position of a step by name, -1 if the plan has none.
func (p *Plan) index(name string) int {
	for i := range p.Steps {
		if p.Steps[i].Name == name {
			return i
		}
	}
	return -1
}
