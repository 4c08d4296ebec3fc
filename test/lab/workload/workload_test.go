// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"pgregory.net/rapid"
)

func TestOperationsStayWithinTheVolumeAndTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Stream{
			Seed:   rapid.Uint64().Draw(t, "seed"),
			Blocks: rapid.Uint64Range(MaxCount+1, 1<<40).Draw(t, "blocks"),
			Mix:    DefaultMix,
		}
		seq := rapid.Uint64().Draw(t, "seq")
		op := s.At(seq)
		if op != s.At(seq) {
			t.Fatalf("operation %d is not always the same", seq)
		}
		if op.Count < 1 || op.Count > MaxCount || op.Block+op.Count > s.Blocks {
			t.Fatalf("operation %+v does not fit %d blocks", op, s.Blocks)
		}
	})
}

func TestAStreamHasEveryKindOfOperation(t *testing.T) {
	s := Stream{Seed: 1, Blocks: 1 << 14, Mix: DefaultMix}
	kinds := make(map[Kind]int)
	var large, flushed int
	for seq := range uint64(1000) {
		op := s.At(seq)
		kinds[op.Kind]++
		if op.Kind == Write && op.Count > 1 {
			large++
		}
		if op.Flush {
			flushed++
		}
	}
	if kinds[Write] < 800 || kinds[Zero] < 10 || kinds[Discard] < 10 || large < 100 || flushed < 50 {
		t.Errorf("of 1000 operations: %v, %d large writes, %d flushed", kinds, large, flushed)
	}
}

func TestASequentialStreamWritesTheVolumeFromEndToEnd(t *testing.T) {
	s := Stream{Seed: 1, First: 10, Blocks: 1030, Mix: Mix{Zero: 50, Sequential: 256}}
	for seq, want := range []uint64{10, 266, 522, 778, 10, 266} {
		if op := s.At(uint64(seq)); op.Kind != Write || op.Block != want || op.Count != 256 {
			t.Errorf("operation %d is %+v, want 256 blocks written from %d on", seq, op, want)
		}
	}
	s.Blocks = 256
	if s.Check() == nil {
		t.Error("a part that a single operation fills is taken")
	}
}

func TestEveryByteOfARecordCounts(t *testing.T) {
	block := make([]byte, BlockSize)
	PutRecord(block, 1, 2, 3)
	if !IsRecord(block, 1, 2, 3) {
		t.Fatal("a record is not recognized")
	}
	for i := range block {
		block[i] ^= 0x10
		if IsRecord(block, 1, 2, 3) {
			t.Fatalf("a flip in byte %d is not noticed", i)
		}
		block[i] ^= 0x10
	}
	for _, other := range [][3]uint64{{2, 2, 3}, {1, 3, 3}, {1, 2, 4}} {
		if IsRecord(block, other[0], other[1], other[2]) {
			t.Errorf("record {1 2 3} passes for %v", other)
		}
	}
}

func TestInterleavedStreamsKeepToTheirOwnBlocks(t *testing.T) {
	const blocks, parts = 1000, 3
	for part := range uint64(parts) {
		s := Stream{Seed: 7, First: part, Blocks: blocks / parts, Step: parts, Mix: DefaultMix}
		seen := map[uint64]bool{}
		for seq := range uint64(20000) {
			op := s.At(seq)
			if op.Count != 1 || op.Block%parts != part || op.Block >= blocks || !s.Covers(op.Block) {
				t.Fatalf("part %d: operation %+v", part, op)
			}
			seen[op.Block] = true
		}
		covered := 0
		for b := range uint64(blocks) {
			if s.Covers(b) {
				covered++
			}
		}
		if covered != blocks/parts || len(seen) != covered {
			t.Errorf("part %d covers %d blocks and has written %d, want %d", part, covered, len(seen), blocks/parts)
		}
	}
}
