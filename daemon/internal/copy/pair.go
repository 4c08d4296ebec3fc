// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"context"
)

type pair struct {
	spec  *Spec
	src   End
	dst   End
	table *chunkTable
	// zeroGrainBytes is the smallest run of zeros inside a chunk that is not written, 0 for
	// defaultZeroGrainBytes.
	zeroGrainBytes int
}

func (e *pair) readBack(ctx context.Context, chunk int, buf []byte) (differs bool, err error) {
	p := buf[:e.table.bytesOf(chunk)]
	if err := e.spec.Limit.wait(ctx, int64(len(p))); err != nil {
		return false, err
	}
	if err := readFull(e.dst, e.spec.Dst.Path, p, int64(chunk)*chunkBytes); err != nil {
		return false, err
	}
	return hashOf(p) != e.table.get(chunk), nil
}

// locate returns the offset of the first byte of a chunk that differs from src, or the chunk's
// offset if src, read again, shows no difference.
func (e *pair) locate(got []byte, off int64) int64 {
	want := newBuffer(len(got))
	if readFull(e.src, e.spec.Src.Path, want, off) != nil {
		return off
	}
	if i := firstDifference(want, got); i < len(got) {
		return off + int64(i)
	}
	return off
}

func firstDifference(a, b []byte) int {
	n := 0
	for step := 4096; n < len(a); n += step {
		end := min(n+step, len(a))
		if !bytes.Equal(a[n:end], b[n:end]) {
			break
		}
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return min(n, len(a))
}
