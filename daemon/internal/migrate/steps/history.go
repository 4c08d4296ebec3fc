// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
)

// History answers what the other ops of a migration have done. Its errors are typed for the
// runner.
type History interface {
	// Completed says whether a complete of the migration is past its commit point.
	Completed(ctx context.Context, s *Spec) (bool, error)
	// Copied says whether dst is known to be a copy of src.
	Copied(ctx context.Context, s *Spec) (bool, error)
	// Facts are what else the steps ask about. The complete with this op id does not count.
	Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error)
	// Dst is the newest note of a dst that the migration makes, whichever of its ops made it.
	Dst(ctx context.Context, s *Spec) (DstNote, error)
	// BegunHeld says whether a job of this kind was begun in this process of the guest with
	// the guest suspended. False if the process is not known.
	BegunHeld(ctx context.Context, s *Spec, job hv.JobKind, process string) (bool, error)
}

// Facts are what the journal knows of a migration that its steps ask about.
type Facts struct {
	// Seal is the stamp of src when it had become frozen, nil if an older version made the
	// start.
	Seal *image.Stamp
	// Folding: a cancel has begun to write the overlay back into src, so src has changed by
	// our own doing.
	Folding bool
	// Completing: an earlier complete has begun, and part of the overlay may be in dst.
	Completing bool
	// Process is the process that start has put onto the overlay, empty if it is not known.
	Process string
}

// DstNote is what a start notes about dst: before it makes anything, and again when dst is
// whole. The second note about a file comes before the file is at its path.
type DstNote struct {
	Ours bool `json:"ours"`
	// Free: dst was there already, and nobody has it.
	Free bool `json:"free,omitempty"`
	// Temporary is the name that the file has in its directory until it is whole, where
	// the filesystem cannot have a file without a name.
	Temporary string `json:"temporary,omitempty"`
	// Print is the fingerprint of what was made, empty before it is whole.
	Print string `json:"print,omitempty"`
}

// foldingNote is what the notes of commit and fold have in common.
type foldingNote struct {
	Folding bool `json:"folding"`
}
