// SPDX-License-Identifier: Apache-2.0

// Package workload is what the guest's writer and the host's checker must
// agree on: the endless stream of operations that follows from a seed, the
// content of every block that such an operation writes, and the lines that
// pass between the two. It is pure: it opens nothing and knows no libvirt.
package workload

import (
	"fmt"
	"math/rand/v2"
)

// BlockSize is the unit of every operation, in bytes.
const BlockSize = 4096

// MaxCount is the largest number of blocks that one operation touches, if it is not a
// sequential one: 256 KiB.
const MaxCount = 64

// Window is how many operations a writer may have issued beyond the ones whose
// acknowledgement the host has confirmed. Whatever happens to the guest and to
// the lines on their way, no later operation can have touched the disk.
const Window = 256

// Kind is what an operation does to its blocks.
type Kind string

// The kinds of operations.
const (
	Write   Kind = "w" // every block holds a new record
	Zero    Kind = "z" // every block reads as zero (BLKZEROOUT)
	Discard Kind = "d" // every block reads as zero or as before (BLKDISCARD)
)

// Op is one operation of a stream on Count blocks from Block on.
type Op struct {
	Seq   uint64 `json:"q"`
	Kind  Kind   `json:"k"`
	Block uint64 `json:"b"`
	Count uint64 `json:"n"`
	// Flush: the operation is followed by a flush of the disk before it counts
	// as done. It runs alone, so the flush covers every operation before it.
	Flush bool `json:"f,omitempty"`
}

// Overlaps reports whether both operations touch some block.
func (o Op) Overlaps(p Op) bool {
	return o.Block < p.Block+p.Count && p.Block < o.Block+o.Count
}

// Mix says how often an operation is something other than one block written,
// in percent.
type Mix struct {
	Large   uint64 `json:"large"`   // of writes: 8 to 256 KiB
	Zero    uint64 `json:"zero"`    // of operations
	Discard uint64 `json:"discard"` // of operations
	Flush   uint64 `json:"flush"`   // of operations
	// Sequential, where it is not 0, makes every operation a write of so many blocks, one
	// behind the other from the first block to the last and again.
	Sequential uint64 `json:"sequential,omitempty"`
}

// DefaultMix has some of everything, and mostly small writes.
var DefaultMix = Mix{Large: 25, Zero: 3, Discard: 3, Flush: 10}

// Stream is the endless sequence of operations of one writer on one volume. The
// same stream gives the same operations, wherever it is asked.
type Stream struct {
	Seed uint64 `json:"seed"`
	// First and Blocks are the part of the volume that is written to, for a
	// volume that several guests share; Blocks is more than MaxCount.
	First  uint64 `json:"first,omitempty"`
	Blocks uint64 `json:"blocks"`
	Mix    Mix    `json:"mix"`
	// Step, where it is above 1, has the part be every Step-th block of the volume from First on:
	// other writers have the blocks between, and every operation is on one block.
	Step uint64 `json:"step,omitempty"`
}

// Covers reports whether a block is in the part.
func (s Stream) Covers(block uint64) bool {
	step := max(s.Step, 1)
	return block >= s.First && block < s.First+s.Blocks*step && (block-s.First)%step == 0
}

// At returns operation seq. Half of the operations stay in the first sixteenth
// of the part, so that blocks are written again and again.
func (s Stream) At(seq uint64) Op {
	r := rand.New(rand.NewPCG(s.Seed, mix(seq)))
	op := Op{Seq: seq, Kind: Write, Count: 1}
	switch p := r.Uint64N(100); {
	case p < s.Mix.Zero:
		op.Kind = Zero
	case p < s.Mix.Zero+s.Mix.Discard:
		op.Kind = Discard
	}
	if op.Kind != Write || r.Uint64N(100) < s.Mix.Large {
		op.Count = 2 + r.Uint64N(MaxCount-1)
	}
	op.Flush = r.Uint64N(100) < s.Mix.Flush
	if n := s.Mix.Sequential; n > 0 {
		op.Kind, op.Count, op.Block = Write, n, s.First+seq%(s.Blocks/n)*n
		return op
	}
	if s.Step > 1 {
		op.Count = 1
	}
	span := s.Blocks
	if hot := s.Blocks / 16; r.Uint64N(2) == 0 && hot > MaxCount {
		span = hot
	}
	op.Block = s.First + r.Uint64N(span-op.Count+1)*max(s.Step, 1)
	return op
}

// Check reports why no writer can follow the stream.
func (s Stream) Check() error {
	if s.Blocks <= s.Largest() {
		return fmt.Errorf("a part of %d blocks is too small: more than %d are needed", s.Blocks, s.Largest())
	}
	return nil
}

// Largest is the number of blocks that an operation touches at most.
func (s Stream) Largest() uint64 { return max(MaxCount, s.Mix.Sequential) }

// mix spreads the bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
