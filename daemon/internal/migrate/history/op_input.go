// SPDX-License-Identifier: Apache-2.0

package history

import (
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/op"
)

// OpInput is the input of a migration's op, with the planned op.
type OpInput struct {
	move.Input
	// Planned has the kind, the steps and the commit point of the op. It is not stored in the
	// input, but with the op.
	Planned op.Op `json:"-"`
}

// Keys implements request.Input.
func (in *OpInput) Keys() []string {
	spec := &in.Spec
	switch move.GoalOf(in.Planned.Kind) {
	case move.GoalCopy:
		if !in.Planned.Has(pause.BeginStep) { // BeginStep suspends the guest
			return []string{spec.CopyKey()}
		}
	case move.GoalStart:
		return []string{spec.Key()}
	case move.GoalComplete, move.GoalCancel:
	}
	return []string{spec.Key(), spec.CopyKey()}
}

// Variant implements request.Varied: a requested cancel may become a rollback.
func (in *OpInput) Variant(string) string { return in.Planned.Kind }

// Plan implements request.Planned.
func (in *OpInput) Plan() (steps []op.StepRef, commit string) {
	return in.Planned.Steps, in.Planned.Commit
}

// Group implements request.Input: a migration is the group of its ops.
func (in *OpInput) Group() string { return in.Spec.MigrationID }
