// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// readbackWorkers read dst back during the copy: the copy's workers keep one direction of a device
// busy, these the other.
const readbackWorkers = 4

// readback verifies chunks that a flush has put on stable storage, while others are still copied.
type readback struct {
	pair *pair

	mu      sync.Mutex
	changed sync.Cond
	queue   []run
	stopped bool
}

func newReadback(p *pair) *readback {
	r := &readback{pair: p}
	r.changed.L = &r.mu
	return r
}

// add queues runs that are on stable storage, except holes of dst: the final verification checks
// these without reading.
func (r *readback) add(runs []run) {
	runs = slices.DeleteFunc(runs, r.isHole)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, runs...)
	r.changed.Broadcast()
}

func (r *readback) isHole(zeros run) bool {
	if !zeros.zero {
		return false
	}
	off := int64(zeros.first) * chunkBytes
	until, data, err := r.pair.dst.Extent(off)
	return err == nil && !data && until >= min(off+int64(zeros.count)*chunkBytes, r.pair.dst.Size())
}

func (r *readback) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.changed.Broadcast()
}

func (r *readback) next() (chunk int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 && !r.stopped {
		r.changed.Wait()
	}
	if r.stopped {
		return 0, false
	}
	head := &r.queue[0]
	chunk = head.first
	head.first++
	if head.count--; head.count == 0 {
		r.queue = r.queue[1:]
	}
	return chunk, true
}

// run verifies queued chunks until stop is called or ctx ends. It returns a *MismatchError at
// once: a wrong copy need not be finished.
func (r *readback) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.stop)()
	arena, free := newArena(readbackWorkers * chunkBytes)
	defer free()
	g, ctx := errgroup.WithContext(ctx)
	for i := range readbackWorkers {
		buf := arena[i*chunkBytes : (i+1)*chunkBytes]
		g.Go(func() error {
			for chunk, ok := r.next(); ok; chunk, ok = r.next() {
				if err := r.verify(ctx, chunk, buf); err != nil {
					r.stop()
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *readback) verify(ctx context.Context, chunk int, buf []byte) error {
	p := r.pair
	differs, err := p.readBack(ctx, chunk, buf)
	if err != nil {
		return err
	}
	if differs {
		off := int64(chunk) * chunkBytes
		return &MismatchError{Src: p.spec.Src.Path, Dst: p.spec.Dst.Path, Offset: p.locate(buf[:p.table.bytesOf(chunk)], off)}
	}
	p.table.setVerified(chunk)
	return nil
}
