// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"iter"

	"golang.org/x/sync/errgroup"
)

// chunkBytes is the unit of reading, hashing and recording. Arrays have the same speed from 512
// KiB to 2 MiB; with 32 MiB they are a quarter slower.
const chunkBytes = 1 << 20

// ChunkBytes is the transfer unit of a copy with a cap, and so the step of its progress.
const ChunkBytes = chunkBytes

// maxHoleBytes bounds a span that is a hole, so that a cancel takes effect soon.
const maxHoleBytes = 1 << 30

// span is a range of an image: one chunk of data, a hole of whole chunks, or whole chunks that src
// and dst inherit from their base images (keptBase).
type span struct {
	off       int64
	n         int64
	hole      bool
	inherited bool
}

func (s span) dataBytes() int64 {
	if s.hole || s.inherited {
		return 0
	}
	return s.n
}

func (s span) firstChunk() int { return int(s.off / chunkBytes) }
func (s span) chunks() int     { return int((s.n + chunkBytes - 1) / chunkBytes) }

type extentReader struct {
	end   End
	until int64
	data  bool
}

func (x *extentReader) holeUntil(off int64) (int64, error) {
	if off >= x.until {
		var err error
		if x.until, x.data, err = x.end.Extent(off); err != nil {
			return 0, err
		}
	}
	if x.data {
		return off, nil
	}
	return x.until, nil
}

// spans divides images of one size into spans, in order. A hole is a hole in all of the images.
func spans(sizeBytes int64, skip func(chunk int) bool, ends ...End) iter.Seq2[span, error] {
	readers := make([]extentReader, len(ends))
	for i := range ends {
		readers[i].end = ends[i]
	}
	return func(yield func(span, error) bool) {
		for off := int64(0); off < sizeBytes; {
			if skip(int(off / chunkBytes)) {
				off += chunkBytes
				continue
			}
			next, err := nextSpan(readers, off, sizeBytes)
			if err == nil && next.hole {
				next = cutAtSkipped(next, skip)
			}
			if !yield(next, err) || err != nil {
				return
			}
			off += next.n
		}
	}
}

func nextSpan(readers []extentReader, off, sizeBytes int64) (span, error) {
	hole := min(off+maxHoleBytes, sizeBytes)
	for i := range readers {
		until, err := readers[i].holeUntil(off)
		if err != nil {
			return span{}, err
		}
		hole = min(hole, until)
	}
	if hole < sizeBytes {
		hole -= hole % chunkBytes
	}
	if hole > off {
		return span{off: off, n: hole - off, hole: true}, nil
	}
	return span{off: off, n: min(chunkBytes, sizeBytes-off)}, nil
}

func cutAtSkipped(s span, skip func(chunk int) bool) span {
	for i := 1; i < s.chunks(); i++ {
		if skip(s.firstChunk() + i) {
			s.n = int64(i) * chunkBytes
			break
		}
	}
	return s
}

func noSkip(int) bool { return false }

// sweep lets the workers that inFlight permits visit the spans in order, each worker with its own
// buffer. After an error it only waits for the visits in progress.
func sweep(ctx context.Context, inFlight *depth, bufferBytes int, all iter.Seq2[span, error],
	visit func(ctx context.Context, s span, buf []byte) error,
) error {
	arena, free := newArena(inFlight.most * bufferBytes)
	defer free()
	g, groupCtx := errgroup.WithContext(ctx)
	work := make(chan span)
	g.Go(func() error {
		defer inFlight.end()
		defer close(work)
		for s, err := range all {
			if err != nil {
				return err
			}
			select {
			case work <- s:
			case <-groupCtx.Done():
				return context.Cause(groupCtx)
			}
		}
		return nil
	})
	for i := range inFlight.most {
		buf := arena[i*bufferBytes : (i+1)*bufferBytes]
		g.Go(func() error {
			for inFlight.enter(i) {
				s, ok := <-work
				if !ok {
					break
				}
				if err := visit(groupCtx, s, buf); err != nil {
					return err
				}
				inFlight.done(s.dataBytes())
			}
			return nil
		})
	}
	return g.Wait()
}

// readFull fills p from end. After an error it reads again in small steps, to survive a transient
// error, or locate a permanent one to 4 KiB.
func readFull(end End, path string, p []byte, off int64) error {
	if _, err := end.ReadAt(p, off); err == nil {
		return nil
	}
	for at := 0; at < len(p); at += alignBytes {
		step := p[at:min(at+alignBytes, len(p))]
		if _, err := end.ReadAt(step, off+int64(at)); err != nil {
			return &ReadError{path, off + int64(at), err}
		}
	}
	return nil
}
