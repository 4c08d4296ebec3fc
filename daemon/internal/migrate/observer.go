// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Observer receives the events of migrations, for metrics.
type Observer interface {
	// PhaseDone reports that a phase (start, copy, complete, cancel) has succeeded, and the time
	// since its request.
	PhaseDone(phase string, took time.Duration)
	// GuestStalled reports how long the guest could not write: at the "start", when a "job" began,
	// or at the "switch" that ends the migration.
	GuestStalled(at string, d time.Duration)
	// MigrationEnded reports the final state of a migration.
	MigrationEnded(result api.MigrationState)
}

// Notify reports the end of a migration's op to the observer. Call it once for each op that ends.
func Notify(st op.Status, to Observer) {
	phase := move.GoalOf(st.Op.Kind)
	switch {
	case phase == "":
		return
	case st.State == op.StateUndone && phase == move.GoalStart:
		to.MigrationEnded(api.MigrationError)
	case st.State == op.StateDone:
		// The host's clock may have been set back.
		to.PhaseDone(string(phase), max(0, st.FinishedAt.Sub(st.Op.CreatedAt)))
		if state := history.After[phase]; state.Final() {
			to.MigrationEnded(state)
		}
	}
	if ms, ok := plans.StartStall(&st); ok && ms != nil {
		to.GuestStalled("start", inMilliseconds(*ms))
	}
	if ms, ok := plans.HoldStall(&st); ok && ms != nil {
		to.GuestStalled("job", inMilliseconds(*ms))
	}
	if ms, ok := plans.SwitchStall(&st); ok && ms != nil {
		to.GuestStalled("switch", inMilliseconds(*ms))
	}
}

func inMilliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// GuestDisk returns the instance and target of a migration's op; ok is false for other ops and for
// an unattached volume.
func GuestDisk(o op.Op) (instanceID, target string, ok bool) {
	if move.GoalOf(o.Kind) == "" {
		return "", "", false
	}
	var in move.Input
	if err := json.Unmarshal(o.Input, &in); err != nil || !in.Spec.Attached() {
		return "", "", false
	}
	return in.Spec.InstanceID, in.Spec.Target, true
}
