// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// FillSeq is the sequence number of the records that a volume is filled with
// before any writer runs.
const FillSeq = ^uint64(0)

// magic marks a block that holds a record.
const magic = 0x5246_4552_5259_4b31

// The layout of a record, little-endian: magic, seed, sequence and block number
// of 8 bytes each, a payload that follows from them, and 8 bytes of checksum
// over all that.
const (
	payloadStart = 32
	sumStart     = BlockSize - 8
)

// PutRecord writes the content of one block as operation seq of the stream with
// this seed writes it.
func PutRecord(dst []byte, seed, seq, block uint64) {
	le := binary.LittleEndian
	dst = dst[:BlockSize]
	le.PutUint64(dst[0:], magic)
	le.PutUint64(dst[8:], seed)
	le.PutUint64(dst[16:], seq)
	le.PutUint64(dst[24:], block)
	x := mix(seed) ^ mix(seq+1) ^ mix(^block)
	for i := payloadStart; i < sumStart; i += 8 {
		x += 0x9e3779b97f4a7c15
		le.PutUint64(dst[i:], mix(x))
	}
	le.PutUint64(dst[sumStart:], xxh3.Hash(dst[:sumStart]))
}

// IsRecord reports whether the block is exactly what PutRecord writes.
func IsRecord(block []byte, seed, seq, number uint64) bool {
	var want [BlockSize]byte
	PutRecord(want[:], seed, seq, number)
	return bytes.Equal(block, want[:])
}

// RecordSeq returns the sequence number in the block's header, if it has one.
func RecordSeq(block []byte) (seq uint64, ok bool) {
	le := binary.LittleEndian
	return le.Uint64(block[16:]), le.Uint64(block) == magic
}

// Describe says in words what is in a block, for a report of what is wrong
// with it.
func Describe(block []byte, seed, number uint64) string {
	le := binary.LittleEndian
	if IsZero(block) {
		return "zeroes"
	}
	seq, ok := RecordSeq(block)
	if !ok {
		return fmt.Sprintf("foreign data (starts % x)", block[:16])
	}
	what := fmt.Sprintf("record %d", seq)
	if seq == FillSeq {
		what = "the initial fill"
	}
	if n := le.Uint64(block[24:]); n != number {
		what += fmt.Sprintf(" of block %d", n)
	}
	if s := le.Uint64(block[8:]); s != seed {
		what += fmt.Sprintf(" of another volume (seed %d)", s)
	}
	if le.Uint64(block[sumStart:]) != xxh3.Hash(block[:sumStart]) {
		what += " with a wrong checksum"
	}
	return what
}

// IsZero reports whether the block reads as zero.
func IsZero(block []byte) bool {
	return bytes.Count(block, []byte{0}) == len(block)
}

// Filled reports whether the initial fill puts a record into the block, which
// it does for the given percentage of all blocks.
func Filled(seed, block, percent uint64) bool {
	return mix(seed^mix(block+1))%100 < percent
}
