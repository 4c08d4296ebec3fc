// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"math/rand/v2"
	"time"
)

// Kind is what an entry did to its disk.
type Kind string

// The kinds of entries.
const (
	Write Kind = "write"
	Zero  Kind = "zero"  // a discard, or zeroes without data
	Flush Kind = "flush" // what was written before is on stable storage
)

// Entry is one thing that a disk was asked for.
type Entry struct {
	Disk   int       `json:"d"` // its number, in the order of Config
	Kind   Kind      `json:"k"`
	Offset int64     `json:"o,omitempty"`
	Length int64     `json:"n,omitempty"`
	At     time.Time `json:"t"`
	Data   int64     `json:"-"` // where the data of a write is in the file of the tape
}

// Loss is what a power cut does to the writes of a disk that came after its last flush.
type Loss string

// The losses.
const (
	Kept Loss = "kept" // all of them are there
	Lost Loss = "lost" // none is
	Torn Loss = "torn" // some are, of some a part; which, the seed says
)

// Cut is the moment at which the power was cut.
type Cut struct {
	After int    `json:"after"` // so many entries of the tape had come
	Loss  []Loss `json:"loss"`  // of each disk
	Seed  uint64 `json:"seed"`  // of Torn
}

// blockSize is what a disk writes whole or not at all, as disks promise.
const blockSize = 4096

// survives chooses, for a torn cut, which of the blocks of a write are there.
func survives(rng *rand.Rand, blocks int64) func(block int64) bool {
	const share = 4 // of four writes one is gone, one is torn
	switch rng.IntN(share) {
	case 0:
		return func(int64) bool { return false }
	case 1:
		there := make([]bool, blocks)
		for i := range there {
			there[i] = rng.IntN(2) == 0
		}
		return func(block int64) bool { return there[block] }
	default:
		return func(int64) bool { return true }
	}
}
