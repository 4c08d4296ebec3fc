// SPDX-License-Identifier: Apache-2.0

package op

import "context"

// DoFunc is the Do or Undo of a step, with the input of the op.
type DoFunc[I any] func(ctx context.Context, r *Run, in *I) error

// ObserveFunc is the Observe of a step, with the input of the op.
type ObserveFunc[I any] func(ctx context.Context, r *Run, in *I) (Observation, error)

// StepOf returns a step with functions that get the result of read: the op's input (InputOf) or a
// part of it. undo and observe may be nil.
func StepOf[I any](read func(*Run) (*I, error), name string, do, undo DoFunc[I], observe ObserveFunc[I]) Step {
	reading := func(f DoFunc[I]) func(context.Context, *Run) error {
		if f == nil {
			return nil
		}
		return func(ctx context.Context, r *Run) error {
			in, err := read(r)
			if err != nil {
				return err
			}
			return f(ctx, r, in)
		}
	}
	st := Step{Name: name, Do: reading(do), Undo: reading(undo)}
	if observe != nil {
		st.Observe = func(ctx context.Context, r *Run) (Observation, error) {
			in, err := read(r)
			if err != nil {
				return Unknown, err
			}
			return observe(ctx, r, in)
		}
	}
	return st
}

// InputOf decodes the input of the op.
func InputOf[I any](r *Run) (*I, error) {
	in := new(I)
	return in, r.Input(in)
}

// DoneIf returns Done or NotDone.
func DoneIf(yes bool) Observation {
	if yes {
		return Done
	}
	return NotDone
}
