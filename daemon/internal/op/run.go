// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"fmt"
)

// Run is a step's view of its op.
type Run struct {
	op     Op
	step   string
	output json.RawMessage
	// outputs and notes of all steps, by step name; the last counts.
	outputs   map[string]json.RawMessage
	notes     map[string]json.RawMessage
	note      func(ctx context.Context, data json.RawMessage) error
	committed bool
}

// OpID returns the id of the op.
func (r *Run) OpID() string { return r.op.ID }

// Group returns the group of the op.
func (r *Run) Group() string { return r.op.Group }

// Has reports whether the op has a step with this name.
func (r *Run) Has(step string) bool { return r.op.Has(step) }

// Committed reports whether the commit point has passed, so that the op only goes forward.
func (r *Run) Committed() bool { return r.committed }

// Outputs returns the outputs of the earlier steps by step name. The caller must not change the
// map.
func (r *Run) Outputs() map[string]json.RawMessage { return r.outputs }

// Input decodes the input of the op into v.
func (r *Run) Input(v any) error {
	if err := json.Unmarshal(r.op.Input, v); err != nil {
		return fmt.Errorf("decode the input of op %s: %w", r.op.ID, err)
	}
	return nil
}

// SetOutput sets v as the output of the running step. The record of the step's success contains
// it. Observe has to set it as well, because a crash may come between effect and record.
func (r *Run) SetOutput(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the output of step %s: %w", r.step, err)
	}
	r.output = data
	return nil
}

// Output decodes the output of an earlier step into v, and reports whether the step has one.
func (r *Run) Output(step string, v any) (bool, error) {
	return decode(r.outputs, step, v)
}

// Note stores v in the journal before it returns. It is for a fact that the next effect destroys
// and that Undo or a repeated Do needs (whether the guest was running before the pause). After an
// error the step must not make the effect. The last note of a step counts.
func (r *Run) Note(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a note of step %s: %w", r.step, err)
	}
	if err := r.note(ctx, data); err != nil {
		return err
	}
	r.notes[r.step] = data
	return nil
}

// Noted decodes the last note of a step, this one or an earlier one, into v, and reports whether
// the step has one.
func (r *Run) Noted(step string, v any) (bool, error) {
	return decode(r.notes, step, v)
}

func decode(from map[string]json.RawMessage, step string, v any) (bool, error) {
	data, ok := from[step]
	if !ok || len(data) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return true, fmt.Errorf("decode what step %s left: %w", step, err)
	}
	return true, nil
}
