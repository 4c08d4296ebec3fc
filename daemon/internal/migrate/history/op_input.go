// SPDX-License-Identifier: Apache-2.0

package history

import "github.com/volferry/volferry/daemon/internal/migrate/move"

// OpInput is the input of an op of a migration, with the op's kind.
type OpInput struct {
	move.Input
	Kind string
}

// Keys implements request.Input.
func (in *OpInput) Keys() []string {
	spec := &in.Spec
	switch move.GoalOf(in.Kind) {
	case move.GoalCopy:
		if in.Kind != move.KindBeginMirror { // KindBeginMirror suspends the guest
			return []string{spec.CopyKey()}
		}
	case move.GoalStart:
		return []string{spec.Key()}
	case move.GoalComplete, move.GoalCancel:
	}
	return []string{spec.Key(), spec.CopyKey()}
}

// Variant implements request.Varied: a request has a goal, and the op kind is chosen when the
// request is admitted.
func (in *OpInput) Variant(string) string { return in.Kind }

// Group implements request.Input: a migration is the group of its ops.
func (in *OpInput) Group() string { return in.Spec.MigrationID }
