// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"encoding/hex"
	"sync"

	"github.com/zeebo/xxh3"
)

// sampleEvery: one of sampleEvery early-verified chunks is read back again at the end. A device
// that puts bytes in the wrong place, or wraps around below its claimed size, overwrites correct
// chunks later.
const sampleEvery = 64

// hash is the XXH3-128 of one chunk.
type hash = [16]byte

// chunkTable holds the hash of every completed chunk. Each worker writes its own chunks; the table
// is read when the workers have ended.
type chunkTable struct {
	sizeBytes int64
	mu        sync.Mutex
	hashes    []hash
	done      []bool
	verified  []bool // dst was read back with the chunk's hash
}

// run is a number of consecutive chunks.
type run struct {
	first int
	count int
	zero  bool
}

func newChunkTable(sizeBytes int64) *chunkTable {
	n := int((sizeBytes + chunkBytes - 1) / chunkBytes)
	return &chunkTable{sizeBytes: sizeBytes, hashes: make([]hash, n), done: make([]bool, n), verified: make([]bool, n)}
}

// bytesOf returns the length of a chunk: only the last chunk may be shorter.
func (t *chunkTable) bytesOf(chunk int) int64 {
	return min(chunkBytes, t.sizeBytes-int64(chunk)*chunkBytes)
}

func (t *chunkTable) isDone(chunk int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[chunk]
}

func (t *chunkTable) set(chunk int, h hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hashes[chunk], t.done[chunk] = h, true
}

// setHole marks the chunks of a hole done.
func (t *chunkTable) setHole(s span) {
	for i := range s.chunks() {
		t.set(s.firstChunk()+i, t.zeroHash(s.firstChunk()+i))
	}
}

// forget marks a chunk not done.
func (t *chunkTable) forget(chunk int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[chunk] = false
}

// get returns the hash of a completed chunk.
func (t *chunkTable) get(chunk int) hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hashes[chunk]
}

// zeroHash returns the chunk's hash if it is all zeros.
func (t *chunkTable) zeroHash(chunk int) hash {
	if t.bytesOf(chunk) == chunkBytes {
		return wholeZeroHash()
	}
	return hashOf(zeroBlock[:t.bytesOf(chunk)])
}

// doneBytes returns the size of all completed chunks.
func (t *chunkTable) doneBytes() int64 { return t.sum(t.done) }

// verifiedBytes returns the size of all verified chunks.
func (t *chunkTable) verifiedBytes() int64 { return t.sum(t.verified) }

func (t *chunkTable) sum(chunks []bool) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum int64
	for i, counts := range chunks {
		if counts {
			sum += t.bytesOf(i)
		}
	}
	return sum
}

// setVerified records that a chunk of dst was read back with its hash.
func (t *chunkTable) setVerified(chunk int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified[chunk] = true
}

func (t *chunkTable) isVerified(chunk int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verified[chunk]
}

// forgetSample marks one of sampleEvery chunks not verified.
func (t *chunkTable) forgetSample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(t.verified); i += sampleEvery {
		t.verified[i] = false
	}
}

// doneRuns returns a run for each completed chunk.
func (t *chunkTable) doneRuns() []run {
	var runs []run
	for i := range t.done {
		if t.isDone(i) {
			runs = append(runs, run{first: i, count: 1, zero: t.get(i) == t.zeroHash(i)})
		}
	}
	return runs
}

// digest returns the XXH3-128 of all hashes in order, in hex.
func (t *chunkTable) digest() string {
	h := xxh3.New()
	for _, chunk := range t.hashes {
		_, _ = h.Write(chunk[:])
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

func hashOf(p []byte) hash { return xxh3.Hash128(p).Bytes() }

var wholeZeroHash = sync.OnceValue(func() hash { return hashOf(zeroBlock) })
