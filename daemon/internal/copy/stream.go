// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

type stream struct {
	pair
	saver    *saver
	meter    *meter
	readback *readback
	base     *keptBase

	copied    atomic.Int64
	zeroed    atomic.Int64
	inherited atomic.Int64
	resumed   int64
}

func newStream(spec *Spec, src, dst End, m *meter) *stream {
	table := newChunkTable(src.Size())
	s := &stream{
		pair:  pair{spec: spec, src: src, dst: dst, table: table},
		saver: newSaver(spec.Cursor, dst, table), meter: m,
	}
	if spec.Verify {
		s.readback = newReadback(&s.pair)
		s.saver.flushed = s.readback.add
	}
	return s
}

// run copies the chunks that the cursor lacks, and reads back stored chunks meanwhile. After an
// error it still flushes dst and records the copied chunks.
func (s *stream) run(ctx context.Context) error {
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.meter.begin(PhaseCopy, s.resumed)
	g, ctx := errgroup.WithContext(ctx)
	if s.readback != nil {
		g.Go(func() error { return s.readback.run(ctx) })
	}
	g.Go(func() error {
		err := sweep(ctx, s.spec.bestDepth(), chunkBytes, s.spans(), s.copySpan)
		err = errors.Join(err, s.saver.save())
		if s.readback != nil {
			s.readback.stop()
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	s.meter.begin(PhaseFlush, s.src.Size())
	return s.dst.Flush()
}

// resume takes over the chunks of an earlier run. It reads back the last recorded chunks, which a
// disk that lies about flushes would have lost.
func (s *stream) resume(ctx context.Context) error {
	window, err := s.saver.resume(s.spec.Src.Path, s.spec.Dst.Path)
	if err != nil {
		return err
	}
	buf := newBuffer(chunkBytes)
	for _, chunk := range window {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:s.table.bytesOf(chunk)]
		err := readFull(s.dst, s.spec.Dst.Path, p, int64(chunk)*chunkBytes)
		if err != nil || hashOf(p) != s.table.get(chunk) {
			s.table.forget(chunk) // a write may repair an unreadable chunk
		}
	}
	if s.readback != nil {
		s.readback.add(s.table.doneRuns())
	}
	s.resumed = s.table.doneBytes()
	return nil
}

func (s *stream) spans() iter.Seq2[span, error] {
	if s.base != nil {
		return s.base.spans(s.table.isDone)
	}
	return spans(s.src.Size(), s.table.isDone, s.src)
}

func (s *stream) copySpan(ctx context.Context, sp span, buf []byte) error {
	switch {
	case sp.hole:
		return s.copyHole(ctx, sp)
	case sp.inherited:
		s.base.inherit(sp)
		s.inherited.Add(sp.n)
		s.meter.add(sp.n, 0)
		return ctx.Err()
	}
	if err := s.saver.claim(sp.n); err != nil {
		return err
	}
	if err := s.spec.Limit.wait(ctx, sp.n); err != nil {
		return err
	}
	p := buf[:sp.n]
	if err := readFull(s.src, s.spec.Src.Path, p, sp.off); err != nil {
		return err
	}
	written, left, err := s.writeChunk(p, sp.off)
	if err != nil {
		return err
	}
	chunk := sp.firstChunk()
	s.table.set(chunk, hashOf(p))
	s.copied.Add(written)
	s.zeroed.Add(sp.n - written - left)
	s.inherited.Add(left)
	s.meter.add(sp.n, sp.n)
	return s.saver.done(run{first: chunk, count: 1, zero: written == 0 && s.base == nil}, sp.n)
}

// writeChunk writes a chunk of src. left counts the bytes left to the base images.
func (s *stream) writeChunk(p []byte, off int64) (written, left int64, err error) {
	if s.base != nil {
		return s.base.write(p, off, s.write)
	}
	written, err = s.write(p, off)
	return written, 0, err
}

func (s *stream) copyHole(ctx context.Context, sp span) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.zero(sp.off, sp.n); err != nil {
		return err
	}
	s.table.setHole(sp)
	s.zeroed.Add(sp.n)
	s.meter.add(sp.n, 0)
	return s.saver.done(run{first: sp.firstChunk(), count: sp.chunks(), zero: true}, 0)
}
