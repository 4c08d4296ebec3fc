// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Observation is the answer of Observe: did the step happen?
type Observation int

// The results of Observe. Unknown stops the op and calls the operator, because acting on a guess
// destroys data.
const (
	NotDone Observation = iota
	Done
	Unknown
)

// Step is one part of an op: an effect, its reverse, and a check of whether the effect took place.
// All three must be repeatable, also after an interruption.
type Step struct {
	// Name is stable, because journals on disk contain it. An op with a recorded step that the plan
	// lacks waits for the operator.
	Name string
	// Version distinguishes steps with one name. A change that is incompatible with stored ops
	// makes another version; the plan keeps the old version while such ops may be in a journal.
	Version int
	// Do makes the effect. Do or Observe may set the step's output (Run.SetOutput).
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
	// only if the effect is there. Then Observe is not called after Do: it would prolong a guest's
	// pause.
	Verifies bool
	// Critical steps that follow each other form a critical section. From the start of its first
	// step, a halt does not stop the op until the section ends or the first step is undone: a halt
	// may last long, and the guest is paused. A crash and Stop can end an op anywhere.
	Critical bool
}

// Plan is an op kind: the steps that its ops may have. An op that is submitted without steps gets
// the newest version of each step, in this order, and Commit; with MustChoose it is refused.
type Plan struct {
	Kind  string
	Steps []Step
	// Commit names the step that commits the op when it succeeds: before that a permanent error
	// undoes all steps in reverse order, afterwards the op only goes forward. Empty: the op can be
	// undone until its end.
	Commit string
	// MustChoose: Submit's caller chooses the steps and the commit point of each op.
	MustChoose bool
}

// Validate returns a plan's first error.
func (p *Plan) Validate() error {
	if p.Kind == "" || len(p.Steps) == 0 {
		return errors.New("a plan needs a kind and at least one step")
	}
	seen := map[StepRef]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Name == "" || s.Do == nil {
			return fmt.Errorf("plan %s: a step needs a name and a Do", p.Kind)
		}
		if seen[s.ref()] {
			return fmt.Errorf("plan %s: two steps are named %s", p.Kind, s.ref())
		}
		seen[s.ref()] = true
	}
	if p.Commit != "" && p.index(p.Commit) < 0 {
		return fmt.Errorf("plan %s: its commit point %s is none of its steps", p.Kind, p.Commit)
	}
	return nil
}

func (s *Step) ref() StepRef { return StepRef{s.Name, s.Version} }

// Refs returns the newest version of each step of the plan, in order.
func (p *Plan) Refs() []StepRef {
	var all []StepRef
	for i := range p.Steps {
		ref := p.Steps[i].ref()
		if j := slices.IndexFunc(all, func(r StepRef) bool { return r.Name == ref.Name }); j >= 0 {
			all[j].Version = max(all[j].Version, ref.Version)
			continue
		}
		all = append(all, ref)
	}
	return all
}

// Choose returns the newest version of each of these steps of the plan. It panics if the plan
// lacks one.
func (p *Plan) Choose(names ...string) []StepRef {
	all := p.Refs()
	chosen := make([]StepRef, len(names))
	for i, name := range names {
		j := slices.IndexFunc(all, func(r StepRef) bool { return r.Name == name })
		if j < 0 {
			panic(fmt.Sprintf("plan %s has no step %s", p.Kind, name))
		}
		chosen[i] = all[j]
	}
	return chosen
}

// Of returns the plan of one op: its stored steps, in the stored order. An error wraps ErrHistory.
func (p *Plan) Of(o *Op) (*Plan, error) {
	own := &Plan{Kind: p.Kind, Commit: o.Commit}
	for _, ref := range o.Steps {
		i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.ref() == ref })
		if i < 0 {
			return nil, fmt.Errorf("%w: this program lacks step %s of %s: nothing was done; the program that began the op has it", ErrHistory, ref, p.Kind)
		}
		own.Steps = append(own.Steps, p.Steps[i])
	}
	if err := own.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHistory, err)
	}
	for i := range own.Steps { // the records of an op name its steps without the version
		if own.index(own.Steps[i].Name) != i {
			return nil, fmt.Errorf("%w: the op has two steps named %s", ErrHistory, own.Steps[i].Name)
		}
	}
	return own, nil
}

func (p *Plan) index(name string) int {
	for i := range p.Steps {
		if p.Steps[i].Name == name {
			return i
		}
	}
	return -1
}
