// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Units copies units from src to dst. When it returns nil, the units are on stable storage, and
// with Verify each unit was read back after that. The written data is at least as new as src was
// at the call of Units.
//
// Errors are as in Copy. A *MismatchError means that a unit differed when read back, and either
// spec.Still excludes other writers, or maxDiffering copies in a row found the unit different.
// With a Cursor, a repeated call with the same ranges continues.
func Units(ctx context.Context, spec UnitsSpec) (UnitsResult, error) {
	sizeBytes, err := spec.sizeBytes(ctx)
	if err != nil {
		return UnitsResult{}, err
	}
	if err := spec.check(sizeBytes); err != nil {
		return UnitsResult{}, err
	}
	lock, err := spec.lockDstAs(unix.F_RDLCK)
	if err != nil {
		return UnitsResult{}, err
	}
	defer func() { _ = lock.Close() }()
	src, err := spec.open(ctx, spec.Src)
	if err != nil {
		return UnitsResult{}, err
	}
	defer func() { _ = src.Close() }()
	dst, err := spec.openDst(ctx, lock)
	if err != nil {
		return UnitsResult{}, err
	}
	defer func() { _ = dst.Close() }()
	if err := sameFile(lock, dst); err != nil {
		return UnitsResult{}, err
	}
	pacedSrc, pacedDst := spec.paced(src, dst)
	u := newUnits(&spec, pacedSrc, pacedDst)
	err = u.run(ctx)
	if err == nil {
		err = stillNamed(lock)
	}
	return UnitsResult{CopiedBytes: u.copied, Differing: u.differing}, err
}

const windowBytes = 128 << 20

type units struct {
	pair
	spec  *UnitsSpec
	times map[int64]int // Differing.Times of Again, by offset
	grain int64         // bytes per hash: a unit, or a chunk of it
	meter *meter

	copied    int64
	differing []Differing
}

func newUnits(spec *UnitsSpec, src, dst End) *units {
	var total int64
	for _, r := range spec.all() {
		total += r.Bytes
	}
	u := &units{
		pair: pair{spec: &spec.Spec, src: src, dst: dst}, spec: spec, times: map[int64]int{},
		grain: min(spec.UnitBytes, chunkBytes), meter: newMeter(spec.Progress, total),
	}
	for _, d := range spec.Again {
		for off := d.Offset; off < d.end(); off += spec.UnitBytes {
			u.times[off] = d.Times
		}
	}
	return u
}

func (u *units) run(ctx context.Context) error {
	windows := windowsOf(u.spec.all())
	cursor, err := loadUnits(u.spec)
	if err != nil {
		return err
	}
	for _, w := range windows[:min(cursor.windows, len(windows))] {
		u.copied += bytesOf(w)
	}
	u.differing = cursor.differing
	u.meter.begin(PhaseCopy, u.copied)
	for _, w := range windows[min(cursor.windows, len(windows)):] {
		differing, err := u.window(ctx, w)
		if err != nil {
			return err
		}
		if err := cursor.add(differing); err != nil {
			return err
		}
		u.differing = append(u.differing, differing...)
		u.copied += bytesOf(w)
	}
	return nil
}

func bytesOf(ranges []Range) (sum int64) {
	for _, r := range ranges {
		sum += r.Bytes
	}
	return sum
}

func windowsOf(ranges []Range) (windows [][]Range) {
	var window []Range
	var sum int64
	for _, r := range ranges {
		for off := r.Offset; off < r.end(); off += chunkBytes {
			piece := Range{off, min(chunkBytes, r.end()-off)}
			window = append(window, piece)
			if sum += piece.Bytes; sum >= windowBytes {
				windows, window, sum = append(windows, window), nil, 0
			}
		}
	}
	if len(window) > 0 {
		windows = append(windows, window)
	}
	return windows
}

func (u *units) window(ctx context.Context, pieces []Range) ([]Differing, error) {
	hashes := make([][]hash, len(pieces))
	err := u.each(ctx, pieces, func(ctx context.Context, i int, p []byte) error {
		if err := u.copyPiece(ctx, pieces[i], p); err != nil {
			return err
		}
		if u.spec.Verify {
			hashes[i] = u.hashes(p)
		}
		u.meter.add(int64(len(p)), int64(len(p)))
		return nil
	})
	if err == nil {
		err = u.dst.Flush()
	}
	if err != nil || !u.spec.Verify {
		return nil, err
	}
	found := differingUnits{offsets: map[int64]bool{}}
	err = u.each(ctx, pieces, func(ctx context.Context, i int, p []byte) error {
		off := pieces[i].Offset
		if err := u.spec.Limit.wait(ctx, int64(len(p))); err != nil {
			return err
		}
		if err := readFull(u.dst, u.spec.Dst.Path, p, off); err != nil {
			return err
		}
		for n, h := range u.hashes(p) {
			if h != hashes[i][n] {
				found.add((off + int64(n)*u.grain) / u.spec.UnitBytes * u.spec.UnitBytes)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return u.checkDiffering(found.offsets)
}

func (u *units) checkDiffering(offsets map[int64]bool) (differing []Differing, err error) {
	for off := range offsets {
		d := Differing{Range{off, min(u.spec.UnitBytes, u.dst.Size()-off)}, u.times[off] + 1}
		if u.spec.Still || d.Times >= maxDiffering {
			return nil, &MismatchError{Src: u.spec.Src.Path, Dst: u.spec.Dst.Path, Offset: off}
		}
		differing = append(differing, d)
	}
	slices.SortFunc(differing, func(a, b Differing) int { return cmp.Compare(a.Offset, b.Offset) })
	return differing, nil
}

type differingUnits struct {
	mu      sync.Mutex
	offsets map[int64]bool
}

func (d *differingUnits) add(off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offsets[off] = true
}

func (u *units) copyPiece(ctx context.Context, r Range, p []byte) error {
	until, data, err := u.src.Extent(r.Offset)
	if err != nil {
		return err
	}
	if !data && until >= r.end() {
		clear(p)
		return u.zero(r.Offset, r.Bytes)
	}
	if err := u.spec.Limit.wait(ctx, r.Bytes); err != nil {
		return err
	}
	if err := readFull(u.src, u.spec.Src.Path, p, r.Offset); err != nil {
		return err
	}
	_, err = u.write(p, r.Offset)
	return err
}

func (u *units) hashes(p []byte) []hash {
	all := make([]hash, 0, int64(len(p))/u.grain+1)
	for off := int64(0); off < int64(len(p)); off += u.grain {
		all = append(all, hashOf(p[off:min(off+u.grain, int64(len(p)))]))
	}
	return all
}

func (u *units) each(ctx context.Context, pieces []Range, visit func(ctx context.Context, i int, p []byte) error) error {
	numbered := func(yield func(span, error) bool) {
		for i := range pieces {
			if !yield(span{off: int64(i), n: pieces[i].Bytes}, nil) {
				return
			}
		}
	}
	return sweep(ctx, u.spec.depth(), chunkBytes, numbered, func(ctx context.Context, s span, buf []byte) error {
		return visit(ctx, int(s.off), buf[:s.n])
	})
}
