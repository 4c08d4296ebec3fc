// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
)

// FakeHistory is a migration with a copy that is not completed.
type FakeHistory struct {
	Note steps.DstNote
	// LiveState is the answer of Live; Seal and Snapshot are the seal of src.
	LiveState steps.LiveHistory
	Seal      *image.Stamp
	Snapshot  *steps.SrcSnapshot
}

// Live implements steps.History.
func (h FakeHistory) Live(context.Context, *steps.LiveInput, string) (steps.LiveHistory, error) {
	return h.LiveState, nil
}

// Completed implements steps.History.
func (FakeHistory) Completed(context.Context, *steps.Spec) (bool, error) { return false, nil }

// Copied implements steps.History.
func (FakeHistory) Copied(context.Context, *steps.Spec) (bool, error) { return true, nil }

// Made implements steps.History.
func (FakeHistory) Made(context.Context, *steps.Spec) (bool, error) { return true, nil }

// Facts implements steps.History.
func (h FakeHistory) Facts(context.Context, *steps.Spec, string) (steps.Facts, error) {
	return steps.Facts{Seal: h.Seal, Snapshot: h.Snapshot, SnapshotBegun: h.Snapshot != nil}, nil
}

// BegunHeld implements steps.History.
func (h FakeHistory) BegunHeld(context.Context, *steps.Spec, hv.JobKind, string) (bool, error) {
	return false, nil
}

// EndNotStored implements steps.History.
func (FakeHistory) EndNotStored(context.Context, *steps.Spec) (bool, error) { return false, nil }

// Dst implements steps.History.
func (h FakeHistory) Dst(context.Context, *steps.Spec) (steps.DstNote, error) { return h.Note, nil }
