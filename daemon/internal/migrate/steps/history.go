// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
)

// History says what the other ops of a migration have done. Its errors are typed for the
// runner.
type History interface {
	// Completed reports whether a complete of the migration is past its commit point.
	Completed(ctx context.Context, s *Spec) (bool, error)
	// Copied reports whether dst is known to be a copy of src.
	Copied(ctx context.Context, s *Spec) (bool, error)
	// Made reports whether this host has made dst for a move while all guests write, and has not
	// undone that.
	Made(ctx context.Context, s *Spec) (bool, error)
	// Facts returns what else the steps need to know. The complete with this op id does not
	// count.
	Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error)
	// Dst returns the newest note about a dst that the migration makes, whichever of its
	// ops has made it.
	Dst(ctx context.Context, s *Spec) (DstNote, error)
	// BegunHeld reports whether a job of this kind was begun in this process of the guest with
	// the guest suspended. False if the process is not known.
	BegunHeld(ctx context.Context, s *Spec, job hv.JobKind, process string) (bool, error)
	// EndNotStored reports whether dst may lack what a block job has written to it, because its
	// flush has failed or was cut off, and no other job was begun since with the guest suspended.
	EndNotStored(ctx context.Context, s *Spec) (bool, error)
	// Live says what this host has done in a move while all guests write, in the generation
	// of in. The op with this id does not count.
	Live(ctx context.Context, in *LiveInput, exceptOp string) (LiveHistory, error)
}

// Facts are what the journal says of a migration and its steps need to know.
type Facts struct {
	// Seal is the stamp of src when src was frozen or, by a method that does not freeze it, when
	// nobody had it any more; nil if there is none.
	Seal *image.Stamp
	// Snapshot is that of src, an RBD image, that was made then, nil if there was none.
	// SnapshotBegun: one of its name that is there is ours, whether that is in the journal or not.
	Snapshot      *SrcSnapshot
	SnapshotBegun bool
	// Touched: src was written since, and has the content that was copied.
	Touched bool
	// Folding: a cancel has begun to write the overlay back into src, so we have changed
	// src ourselves.
	Folding bool
	// Completing: an earlier complete has begun, and part of the overlay may be in dst.
	Completing bool
	// Process is the process that start has put onto the overlay, empty if that is unknown.
	Process string
}

// DstNote is the note of a start about dst, written before it makes anything, and again
// when dst is whole. The second note about a file is written before the file is at its
// path.
type DstNote struct {
	Ours bool `json:"ours"`
	// Free: dst was there already, and belonged to nobody.
	Free bool `json:"free,omitempty"`
	// Temporary is the name of the unfinished file in its directory, on a filesystem that
	// cannot have a file without a name.
	Temporary string `json:"temporary,omitempty"`
	// Print is the fingerprint of dst, empty before dst is whole.
	Print string `json:"print,omitempty"`
	// Formatted: dst, a qcow2 image on a block device, was made there.
	Formatted bool `json:"formatted,omitempty"`
}

// SrcSnapshot is the snapshot of src, an RBD image, that was made when src was frozen: nobody has
// written to src as long as nothing was written there since that.
type SrcSnapshot struct {
	Name string `json:"name"`
	ID   uint64 `json:"id"`
}

// snapshotNote is written before the snapshot is made, when there is none of its name: one that is
// there later is ours.
type snapshotNote struct {
	Snapshot string `json:"snapshot"`
}

// writesNote is written right before the first byte is written to dst, by a copy or a job.
type writesNote struct {
	Writes bool `json:"writes,omitempty"`
}

// begunNote is the note of a job that begins with its guest suspended.
type begunNote struct {
	foldingNote
	writesNote
}

// foldingNote is what the notes of commit and fold have in common.
type foldingNote struct {
	Folding bool `json:"folding"`
}
