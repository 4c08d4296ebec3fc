// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// FakeHistory is a migration with a copy that is not completed.
type FakeHistory struct {
	Note move.DstNote
	// LiveState is the result of Live. Seal and Snapshot are the seal of src.
	LiveState move.LiveHistory
	Seal      *image.Stamp
	Snapshot  *move.SrcSnapshot
}

// Live implements move.History.
func (h FakeHistory) Live(context.Context, *move.LiveInput, string) (move.LiveHistory, error) {
	return h.LiveState, nil
}

// Completed implements move.History.
func (FakeHistory) Completed(context.Context, *move.Spec) (bool, error) { return false, nil }

// Copied implements move.History.
func (FakeHistory) Copied(context.Context, *move.Spec) (bool, error) { return true, nil }

// Made implements move.History.
func (FakeHistory) Made(context.Context, *move.Spec) (bool, error) { return true, nil }

// Facts implements move.History.
func (h FakeHistory) Facts(context.Context, *move.Spec, string) (move.Facts, error) {
	return move.Facts{Seal: h.Seal, Snapshot: h.Snapshot, SnapshotBegun: h.Snapshot != nil}, nil
}

// BegunHeld implements move.History.
func (h FakeHistory) BegunHeld(context.Context, *move.Spec, hv.JobKind, string) (bool, error) {
	return false, nil
}

// EndNotStored implements move.History.
func (FakeHistory) EndNotStored(context.Context, *move.Spec) (bool, error) { return false, nil }

// Dst implements move.History.
func (h FakeHistory) Dst(context.Context, *move.Spec) (move.DstNote, error) { return h.Note, nil }
