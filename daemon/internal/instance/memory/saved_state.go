// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// SavedState is an instance's state before its suspend or save, and the output of that step.
type SavedState struct {
	// State is running, paused or stopped. It is empty without a suspend or save.
	State hv.State `json:"state"`
}

func (r SavedState) hadMemory() bool { return r.State.Active() && r.State != "" }

// stateOf returns a domain's saved state. A guest that an I/O error has paused counts as running:
// it would continue once the storage is repaired.
func stateOf(dom *hv.Domain) SavedState {
	if dom.State == hv.StatePaused && dom.PauseReason == hv.PauseIOError {
		return SavedState{hv.StateRunning}
	}
	return SavedState{dom.State}
}

// SavedState reads from the journal an instance's state before its save for a migration. The state
// is zero without a save, or if the save was undone and the save image does not have the RAM.
func (e *Env) SavedState(ctx context.Context, in *PauseInput) (SavedState, error) {
	var is SavedState
	asleep, err := e.asleep(ctx, in)
	if err != nil {
		return is, err
	}
	err = e.PauseOps(ctx, in, func(st op.Status) error {
		saved := st.State == op.StateDone || (st.State == op.StateUndone && asleep)
		if data, ok := st.Outputs[subject.StepNameSave]; ok && st.Op.Kind == subject.KindSave && saved {
			return json.Unmarshal(data, &is)
		}
		return nil
	})
	return is, err
}

// suspendedState reads from the journal an instance's state before its suspend for a migration.
// The state is zero without a suspend, or if it was undone.
func (e *Env) suspendedState(ctx context.Context, in *PauseInput) (is SavedState, err error) {
	err = e.PauseOps(ctx, in, func(st op.Status) error {
		if data, ok := st.Outputs[subject.StepNameSuspend]; ok && st.Op.Kind == subject.KindSuspend && st.State != op.StateUndone {
			return json.Unmarshal(data, &is)
		}
		return nil
	})
	return is, err
}

func (e *Env) asleep(ctx context.Context, in *PauseInput) (bool, error) {
	there, err := SaveImageExists(in)
	if err != nil || !there {
		return false, err
	}
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	return dom == nil || !dom.State.Active(), err
}

// wakeRequested reports whether a restore, discard or resume was requested. No save may follow
// such a request.
func (e *Env) wakeRequested(ctx context.Context, in *PauseInput) (bool, error) {
	yes := false
	err := e.PauseOps(ctx, in, func(st op.Status) error {
		yes = yes || slices.Contains(subject.WakeKinds, st.Op.Kind)
		return nil
	})
	return yes, err
}

// PauseOps yields an instance's ops for a migration, oldest first.
func (e *Env) PauseOps(ctx context.Context, in *PauseInput, yield func(op.Status) error) error {
	ops, err := e.journal.Group(ctx, in.InstanceID)
	if err != nil {
		return journalError(err)
	}
	for _, o := range ops {
		if o.Kind != subject.KindSuspend && o.Kind != subject.KindSave && !slices.Contains(subject.WakeKinds, o.Kind) {
			continue
		}
		var of PauseInput
		if err := json.Unmarshal(o.Input, &of); err != nil {
			return fmt.Errorf("read op %s: %w", o.ID, err)
		}
		if of.MigrationID != in.MigrationID {
			continue
		}
		st, err := e.runner.Status(ctx, o.ID)
		if err != nil {
			return journalError(err)
		}
		if err := yield(st); err != nil {
			return fmt.Errorf("read op %s: %w", o.ID, err)
		}
	}
	return nil
}

func journalError(err error) error {
	return op.Retry(request.BusyDelay, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err))
}

func savedStateOf(r *op.Run) (SavedState, error) {
	var was SavedState
	_, err := r.Output(subject.StepNameSavedState, &was)
	return was, err
}
