// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/op"
)

// History reports what other ops of a migration have done, with errors typed for the runner.
type History interface {
	// Completed reports whether a complete op is past its commit point.
	Completed(ctx context.Context, s *Spec) (bool, error)
	// Copied reports whether the journal shows that dst is a copy of src.
	Copied(ctx context.Context, s *Spec) (bool, error)
	// Made reports whether this host has made dst for a move while all guests write, and has not
	// undone that.
	Made(ctx context.Context, s *Spec) (bool, error)
	// Facts returns the journal's facts about the migration. It ignores the complete with the op
	// id exceptOp.
	Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error)
	// Dst returns the newest note about a dst that the migration makes.
	Dst(ctx context.Context, s *Spec) (DstNote, error)
	// BegunHeld reports whether a job of this kind began in this process of the guest while the
	// guest was suspended. It is false for an unknown process.
	BegunHeld(ctx context.Context, s *Spec, job hv.JobKind, process string) (bool, error)
	// EndNotStored reports whether dst may lack writes of a block job, because a flush of dst
	// failed or was interrupted, and no job has begun since with the guest suspended.
	EndNotStored(ctx context.Context, s *Spec) (bool, error)
	// Live returns what this host has done in a move while all guests write, in the generation of
	// in, without the op with this id.
	Live(ctx context.Context, in *LiveInput, exceptOp string) (LiveHistory, error)
}

// Facts are the journal's facts about a migration.
type Facts struct {
	// Seal is the stamp of src from its freeze. If the method does not freeze src, it is from the
	// pause of the switch (a mirror), or from when no process had src open any more. It is nil
	// without a stamp.
	Seal *image.Stamp
	// Snapshot is the snapshot that was made of src, an RBD image, at that time; nil if none was
	// made. SnapshotBegun: a snapshot of its name is ours, even if the journal does not have it.
	Snapshot      *SrcSnapshot
	SnapshotBegun bool
	// Touched: src was written since, but still has the copied content.
	Touched bool
	// Folding: a cancel has begun to fold the overlay into src, so this host has changed src.
	Folding bool
	// Completing: an earlier complete op has begun, and dst may have a part of the overlay.
	Completing bool
	// Process is the guest's process that start has switched to the overlay, or empty if unknown.
	Process string
}

// DstNote is a start's note in the journal about dst. It is written before dst is made, and again
// when dst is complete, before a new file gets its path.
type DstNote struct {
	Ours bool `json:"ours"`
	// Free: dst existed already, and belonged to no volume.
	Free bool `json:"free,omitempty"`
	// Temporary is the name, in the directory of dst, of the unfinished file on a filesystem
	// without nameless files.
	Temporary string `json:"temporary,omitempty"`
	// Print is the fingerprint of a complete dst, otherwise empty.
	Print string `json:"print,omitempty"`
	// Formatted: dst was made as a qcow2 image on a block device.
	Formatted bool `json:"formatted,omitempty"`
}

// SrcSnapshot is the snapshot of a frozen RBD image: src is unchanged while the cluster reports no
// difference to the snapshot.
type SrcSnapshot struct {
	Name string `json:"name"`
	ID   uint64 `json:"id"`
}

// SnapshotNote is written while no snapshot has its name. A later snapshot of that name is the
// migration's.
type SnapshotNote struct {
	Snapshot string `json:"snapshot"`
}

// WritesNote is written right before the first byte of dst is written.
type WritesNote struct {
	Writes bool `json:"writes,omitempty"`
	// Refused: the block job of the note before was refused, and has not written dst.
	Refused bool `json:"refused,omitempty"`
}

// BegunNote is the note of a block job that begins.
type BegunNote struct {
	FoldingNote
	WritesNote
}

// FoldingNote is part of the notes of the steps that commit or fold the overlay.
type FoldingNote struct {
	Folding bool `json:"folding"`
}

// CreateDestinationStep is the name of StepCreateDestination of package place.
const CreateDestinationStep = "create_destination"

// DecodeOutput reads a step's output; false if there is none.
func DecodeOutput(st *op.Status, step string, v any) bool {
	data, ok := st.Outputs[step]
	return ok && json.Unmarshal(data, v) == nil
}
