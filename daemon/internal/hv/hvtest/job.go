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
	whole       bool       // not the top layer alone is copied
	synchronous bool
	bandwidth   int64
	dirty       map[int64]bool
	copied      int64 // blocks
	behind      int64 // bytes that are left beside those of dirty
	ready       bool
	// scan is how many looks from now the job has looked through the disk.
	scan int
	// blind: while it does so it misses what the guest writes (hv.JobStart.LosesWrites).
	blind bool
	// unflushed is what the target had before the job wrote there, of what nobody has flushed
	// since. A flush of the guest does not reach the target.
	unflushed map[int64]uint64
}

// write writes to the target.
func (j *job) write(to *image, block int64, value uint64) error {
	block += headerBlocks(j.dst)
	old := to.blocks[block]
	if err := to.write(j.dst.Path, block, value); err != nil {
		return err
	}
	if _, noted := j.unflushed[block]; !noted {
		if j.unflushed == nil {
			j.unflushed = make(map[int64]uint64)
		}
		j.unflushed[block] = old
	}
	return nil
}

// flush is what QEMU does when it suspends a guest, when a job is ready, and in the pivot.
func (j *job) flush() { j.unflushed = nil }

// lose plays the death of a process, or of the host, with what was not flushed. The kernel keeps
// what a dead process has written to a raw image; of a qcow2 image the process has a part of the
// tables in its memory.
func (j *job) lose(to *image, host bool) {
	if to == nil || !host && j.dst.Format == Raw {
		return
	}
	for block, value := range j.unflushed {
		if value == 0 {
			delete(to.blocks, block)
			continue
		}
		to.blocks[block] = value
	}
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
