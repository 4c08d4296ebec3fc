// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/op"
)

// History reports what the other ops of a migration have done. Its errors are typed for the runner.
type History interface {
	// Completed reports whether a complete of the migration is past its commit point.
	Completed(ctx context.Context, s *Spec) (bool, error)
	// Copied reports whether dst is known to be a copy of src.
	Copied(ctx context.Context, s *Spec) (bool, error)
	// Made reports whether this host has made dst for a move while all guests write, and has not
	// undone that.
	Made(ctx context.Context, s *Spec) (bool, error)
	// Facts returns the other facts for the steps. The complete with this op id does not count.
	Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error)
	// Dst returns the newest note about a dst that the migration makes, by any of its ops.
	Dst(ctx context.Context, s *Spec) (DstNote, error)
	// BegunHeld reports whether a job of this kind was begun in this process of the guest with the
	// guest suspended. It is false if the process is unknown.
	BegunHeld(ctx context.Context, s *Spec, job hv.JobKind, process string) (bool, error)
	// EndNotStored reports whether dst may lack writes of a block job, because its flush failed or
	// was interrupted, and no other job was begun since with the guest suspended.
	EndNotStored(ctx context.Context, s *Spec) (bool, error)
	// Live returns what this host has done in a move while all guests write, in the generation of
	// in. The op with this id does not count.
	Live(ctx context.Context, in *LiveInput, exceptOp string) (LiveHistory, error)
}

// Facts are facts about a migration from the journal, for its steps.
type Facts struct {
	// Seal is the stamp of src from when src was frozen or, in a method that does not freeze it,
	// from when no process had it open any more; nil if there is none.
	Seal *image.Stamp
	// Snapshot is the snapshot that was then made of src, an RBD image; nil if none was made.
	// SnapshotBegun: an existing snapshot of that name is ours, even if the journal does not have
	// it.
	Snapshot      *SrcSnapshot
	SnapshotBegun bool
	// Touched: src was written since, and still has the copied content.
	Touched bool
	// Folding: a cancel has begun to write the overlay back into src, so this host itself has
	// changed src.
	Folding bool
	// Completing: an earlier complete has begun, and part of the overlay may be in dst.
	Completing bool
	// Process is the process that start has switched to the overlay, empty if unknown.
	Process string
}

// DstNote is the note of a start about dst, written before dst is made, and again when dst is
// complete; for a file, before the file has its path.
type DstNote struct {
	Ours bool `json:"ours"`
	// Free: dst existed already, and belonged to no volume.
	Free bool `json:"free,omitempty"`
	// Temporary is the name of the unfinished file in its directory, on a filesystem that cannot
	// have a file without a name.
	Temporary string `json:"temporary,omitempty"`
	// Print is the fingerprint of dst, empty before dst is complete.
	Print string `json:"print,omitempty"`
	// Formatted: dst, a qcow2 image on a block device, was made there.
	Formatted bool `json:"formatted,omitempty"`
}

// SrcSnapshot is the snapshot of a frozen src that is an RBD image: src is unchanged while the
// cluster reports no difference since the snapshot.
type SrcSnapshot struct {
	Name string `json:"name"`
	ID   uint64 `json:"id"`
}

// SnapshotNote is written before the snapshot is made, while none has its name: a later one of that
// name is ours.
type SnapshotNote struct {
	Snapshot string `json:"snapshot"`
}

// WritesNote is written right before a copy or a job writes the first byte to dst.
type WritesNote struct {
	Writes bool `json:"writes,omitempty"`
}

// BegunNote is the note of a job that begins with its guest suspended.
type BegunNote struct {
	FoldingNote
	WritesNote
}

// FoldingNote is the common part of the notes of commit and fold.
type FoldingNote struct {
	Folding bool `json:"folding"`
}

// CreateDestinationStep is the name of StepCreateDestination of package place.
const CreateDestinationStep = "create_destination"

// DecodeOutput reads the output of a step of an op; false if there is none.
func DecodeOutput(st *op.Status, step string, v any) bool {
	data, ok := st.Outputs[step]
	return ok && json.Unmarshal(data, v) == nil
}
