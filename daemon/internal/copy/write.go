// SPDX-License-Identifier: Apache-2.0

package copy

import "cmp"

const (
	// defaultZeroGrainBytes is the smallest deallocated run of zeros inside a chunk: at most 16
	// operations per chunk.
	defaultZeroGrainBytes = 64 << 10
	// fileBlockBytes is the smallest run of zeros that is not written to a file of zeros, so that
	// the file takes no more space than src. A chunk needs at most 128 writes.
	fileBlockBytes = 4 << 10
)

func (e *pair) write(p []byte, off int64) (written int64, err error) {
	grain := cmp.Or(e.zeroGrainBytes, defaultZeroGrainBytes)
	for start := 0; start < len(p); {
		end, zero := zeroRun(p, start, grain)
		part, at := p[start:end], off+int64(start)
		if zero {
			err = e.zero(at, int64(len(part)))
		} else if _, err = e.dst.WriteAt(part, at); err != nil {
			err = &WriteError{e.spec.Dst.Path, at, err}
		} else {
			written += int64(len(part))
		}
		if err != nil {
			return written, err
		}
		start = end
	}
	return written, nil
}

func zeroRun(p []byte, start, bytes int) (end int, zero bool) {
	grain := func(at int) []byte { return p[at:min(at+bytes, len(p))] }
	zero = isZero(grain(start))
	for end = start + bytes; end < len(p) && isZero(grain(end)) == zero; end += bytes {
	}
	return min(end, len(p)), zero
}

func (e *pair) zero(off, n int64) error {
	if e.spec.DstIsZero {
		return nil
	}
	if err := e.dst.Zero(off, n); err != nil {
		return &WriteError{e.spec.Dst.Path, off, err}
	}
	return nil
}
