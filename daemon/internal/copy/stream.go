// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/retry"
)

// zeroGrainBytes is the smallest run of zeros inside a chunk that is
// deallocated instead of written: 16 operations for a chunk at the worst.
const zeroGrainBytes = 64 << 10

// maxChildRest is the longest rest of a child, however little it may do: it works in
// bursts between two looks at its progress, and is to come to its end.
const maxChildRest = 250 * time.Millisecond

// stream copies chunk by chunk between two open ends.
type stream struct {
	pair
	saver *saver
	meter *meter
	// readback is nil where nothing is verified.
	readback *readback

	copied  atomic.Int64
	zeroed  atomic.Int64
	resumed int64
}

func newStream(spec *Spec, src, dst End, m *meter) *stream {
	table := newChunkTable(src.Size())
	s := &stream{
		pair:  pair{spec, src, dst, table},
		saver: newSaver(spec.Cursor, dst, table), meter: m,
	}
	if spec.Verify {
		s.readback = newReadback(&s.pair)
		s.saver.flushed = s.readback.add
	}
	return s
}

// run copies what the cursor does not have, and reads back meanwhile what is on
// stable storage already. However it ends, the cursor then has all that is on
// stable storage.
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
		err := sweep(ctx, s.spec.workers(), chunkBytes, spans(s.src.Size(), s.table.isDone, s.src), s.copySpan)
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

// resume takes over what an earlier run has done. What it recorded last is read
// back: if a lying disk lost anything, it lost that. The rest is read back while
// the copy goes on.
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
			s.table.forget(chunk) // a write may heal what a read cannot
		}
	}
	if s.readback != nil {
		s.readback.add(s.table.doneRuns())
	}
	s.resumed = s.table.doneBytes()
	return nil
}

func (s *stream) copySpan(ctx context.Context, sp span, buf []byte) error {
	if sp.hole {
		return s.copyHole(ctx, sp)
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
	written, err := s.write(p, sp.off)
	if err != nil {
		return err
	}
	chunk := sp.firstChunk()
	s.table.set(chunk, hashOf(p))
	s.copied.Add(written)
	s.zeroed.Add(sp.n - written)
	s.meter.add(sp.n, sp.n)
	return s.saver.done(run{first: chunk, count: 1, zero: written == 0}, sp.n)
}

// copyHole makes the same hole in dst.
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

// write writes the data in p and deallocates its zeros.
func (s *stream) write(p []byte, off int64) (written int64, err error) {
	for start := 0; start < len(p); {
		end, zero := zeroRun(p, start)
		part, at := p[start:end], off+int64(start)
		if zero {
			err = s.zero(at, int64(len(part)))
		} else if _, err = s.dst.WriteAt(part, at); err != nil {
			err = &WriteError{s.spec.Dst.Path, at, err}
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

// zeroRun finds how far p from start on is all zeros, or all not, by grains.
func zeroRun(p []byte, start int) (end int, zero bool) {
	grain := func(at int) []byte { return p[at:min(at+zeroGrainBytes, len(p))] }
	zero = isZero(grain(start))
	for end = start + zeroGrainBytes; end < len(p) && isZero(grain(end)) == zero; end += zeroGrainBytes {
	}
	return min(end, len(p)), zero
}

// zero makes dst read as zeros there, unless its creator said that it does.
func (s *stream) zero(off, n int64) error {
	if s.spec.DstIsZero {
		return nil
	}
	if err := s.dst.Zero(off, n); err != nil {
		return &WriteError{s.spec.Dst.Path, off, err}
	}
	return nil
}

// childThrottle paces a child process (qemu-img), which moves bytes by itself and reports them
// afterwards. The child works only for a part of the time: the part of the largest amount in
// flight that the pacer allows.
func (s *Spec) childThrottle() qemuimg.Throttle {
	worked := time.Now()
	return func(ctx context.Context, bytes int64) error {
		for ; bytes > 0; bytes -= chunkBytes {
			if err := s.Limit.wait(ctx, min(bytes, chunkBytes)); err != nil {
				return err
			}
		}
		var rest time.Duration
		if s.Pace != nil {
			allowed, atLeast := s.Pace.Allow()
			share := float64(min(allowed, maxInFlight)) / maxInFlight
			rest = max(atLeast, min(maxChildRest, time.Duration(float64(time.Since(worked))*(1/share-1))))
		}
		err := retry.Sleep(ctx, rest)
		worked = time.Now()
		return err
	}
}
