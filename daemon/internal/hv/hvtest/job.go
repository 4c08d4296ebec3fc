// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// job is a copy or an active commit. QEMU treats both alike: it reads dirty blocks through the
// chain and writes them to the target.
type job struct {
	kind        hv.JobKind
	dst         hv.Image
	backing     []hv.Image
	whole       bool
	synchronous bool
	bandwidth   int64
	dirty       map[int64]bool
	copied      int64 // blocks
	behind      int64
	ready       bool
	// scan is how many looks remain until the job has scanned the disk.
	scan int
	// blind: during the scan it misses writes of the guest (hv.JobStart.LosesWrites).
	blind bool
	// unflushed has the target's previous values of blocks written since the last flush. A guest's
	// flush does not flush the target.
	unflushed map[int64]uint64
}

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

// flush is QEMU's flush of the target: when it suspends a guest, when a job is ready, and in the
// pivot.
func (j *job) flush() { j.unflushed = nil }

// lose plays the death of a process, or of the host, with unflushed data. The kernel keeps a dead
// process's writes to a raw image; for a qcow2 image the process has a part of the tables in its
// memory.
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

const scanLooks = 4

func (j *job) mark(blocks map[int64]uint64) {
	for block := range blocks {
		j.dirty[block] = true
	}
}

func (j *job) after(chain []hv.Image) []hv.Image {
	if j.kind == hv.JobActiveCommit && len(chain) > 1 {
		return slices.Clone(chain[1:])
	}
	return append([]hv.Image{j.dst}, j.backing...)
}
