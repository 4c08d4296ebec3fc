// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// job is a copy or an active commit. Both are the same thing in QEMU: dirty
// blocks are read through the chain and written to the target.
type job struct {
	kind        hv.JobKind
	dst         hv.Image
	backing     []hv.Image // of dst, as the caller said
	synchronous bool
	bandwidth   int64
	dirty       map[int64]bool
	copied      int64 // blocks
	ready       bool
	// scan is how many looks from now the job has looked through the disk.
	scan int
	// blind: while it does so it misses what the guest writes (hv.JobStart.LosesWrites).
	blind bool
}

// scanLooks is how many looks it takes until a job has looked through its disk.
const scanLooks = 4

func (j *job) mark(blocks map[int64]uint64) {
	for block := range blocks {
		j.dirty[block] = true
	}
}

// after is what becomes of a chain at the pivot.
func (j *job) after(chain []hv.Image) []hv.Image {
	if j.kind == hv.JobActiveCommit && len(chain) > 1 {
		return slices.Clone(chain[1:])
	}
	return append([]hv.Image{j.dst}, j.backing...)
}
