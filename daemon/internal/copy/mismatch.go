// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"math"
	"sync"
)

// firstMismatch keeps the lowest different offset. Spans are visited in order, so after a mismatch
// only earlier spans matter.
type firstMismatch struct {
	mu     sync.Mutex
	offset int64
}

func newFirstMismatch() *firstMismatch { return &firstMismatch{offset: math.MaxInt64} }

func (f *firstMismatch) found(offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offset = min(f.offset, offset)
}

func (f *firstMismatch) before(off int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offset < off
}

func (f *firstMismatch) err(src, dst string) error {
	if !f.before(math.MaxInt64) {
		return nil
	}
	return &MismatchError{Src: src, Dst: dst, Offset: f.offset}
}
