// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"encoding/hex"
	"sync"

	"github.com/zeebo/xxh3"
)

// One in sampleEvery of the early verified chunks is read back again at the end: a device that
// misplaces bytes, or wraps around, overwrites correct chunks later.
const sampleEvery = 64

type hash = [16]byte

// chunkTable has the hash of every completed chunk. It is read after the workers have ended.
type chunkTable struct {
	sizeBytes int64
	mu        sync.Mutex
	hashes    []hash
	done      []bool
	verified  []bool // read back from dst
}

type run struct {
	first int
	count int
	zero  bool
}

func newChunkTable(sizeBytes int64) *chunkTable {
	n := int((sizeBytes + chunkBytes - 1) / chunkBytes)
	return &chunkTable{sizeBytes: sizeBytes, hashes: make([]hash, n), done: make([]bool, n), verified: make([]bool, n)}
}

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

func (t *chunkTable) setHole(s span) {
	for i := range s.chunks() {
		t.set(s.firstChunk()+i, t.zeroHash(s.firstChunk()+i))
	}
}

func (t *chunkTable) forget(chunk int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[chunk] = false
}

func (t *chunkTable) get(chunk int) hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hashes[chunk]
}

func (t *chunkTable) zeroHash(chunk int) hash {
	if t.bytesOf(chunk) == chunkBytes {
		return wholeZeroHash()
	}
	return hashOf(zeroBlock[:t.bytesOf(chunk)])
}

func (t *chunkTable) doneBytes() int64 { return t.sum(t.done) }

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

func (t *chunkTable) forgetSample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(t.verified); i += sampleEvery {
		t.verified[i] = false
	}
}

func (t *chunkTable) doneRuns() []run {
	var runs []run
	for i := range t.done {
		if t.isDone(i) {
			runs = append(runs, run{first: i, count: 1, zero: t.get(i) == t.zeroHash(i)})
		}
	}
	return runs
}

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
