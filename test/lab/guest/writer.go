// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/workload"
)

// writer runs the operations of a stream on a disk, in order and at a pace,
// and reports each after its completion. Operations in flight together never
// touch the same block, so the order of their completion does not matter.
type writer struct {
	name   string
	disk   *disk
	port   *port
	stream workload.Stream

	base, next uint64 // first and next operation
	confirmed  uint64 // acknowledgements that the host has
	interval   time.Duration
	depth      uint64
	stopping   bool

	inFlight map[uint64]workload.Op
	buffers  [][]byte // of those that are not in flight
	commands chan workload.Command
	results  chan result
	ended    chan struct{}
}

// result is how one operation ended.
type result struct {
	op      workload.Op
	buf     []byte
	latency time.Duration
	flush   time.Duration // its part of latency
	err     error
}

func newWriter(p *port, c workload.Command) (*writer, error) {
	if err := c.Stream.Check(); err != nil {
		return nil, err
	}
	d, err := openDisk(c.Disk)
	if err != nil {
		return nil, err
	}
	depth := max(c.Depth, 1)
	w := &writer{
		name: c.Disk, disk: d, port: p, stream: *c.Stream,
		base: c.Base, next: c.Base, interval: time.Duration(c.IntervalUS) * time.Microsecond,
		depth:    uint64(depth),
		inFlight: make(map[uint64]workload.Op),
		commands: make(chan workload.Command), results: make(chan result, depth), ended: make(chan struct{}),
	}
	for range depth {
		buf, err := newBuffer(c.Stream.Largest())
		if err != nil {
			return nil, err
		}
		w.buffers = append(w.buffers, buf)
	}
	return w, nil
}

// tell passes a command to the writer, unless it has ended.
func (w *writer) tell(c workload.Command) {
	select {
	case w.commands <- c:
	case <-w.ended:
	}
}

// stop ends the writer and waits for the end.
func (w *writer) stop() {
	w.tell(workload.Command{Type: workload.CommandStop})
	<-w.ended
}

// run is the writer's goroutine.
func (w *writer) run() {
	defer close(w.ended)
	defer w.disk.close()
	timer := time.NewTimer(0)
	due := time.Now()
	for !w.stopping || len(w.inFlight) > 0 {
		var ready <-chan time.Time
		if op := w.stream.At(w.next); w.mayIssue(op) {
			wait := time.Until(due)
			if wait <= 0 {
				w.issue(op)
				// What a stall delayed is not made up for in a burst.
				due = due.Add(w.interval)
				if now := time.Now(); due.Before(now) {
					due = now
				}
				continue
			}
			timer.Reset(wait)
			ready = timer.C
		}
		select {
		case <-ready:
		case c := <-w.commands:
			w.obey(c)
		case r := <-w.results:
			w.report(r)
		}
	}
	w.port.send(workload.Report{Type: workload.ReportStopped, Disk: w.name})
}

func (w *writer) obey(c workload.Command) {
	switch c.Type {
	case workload.CommandPace:
		w.interval = time.Duration(c.IntervalUS) * time.Microsecond
	case workload.CommandConfirm:
		w.confirmed = max(w.confirmed, c.Confirmed)
	case workload.CommandStop:
		w.stopping = true
	}
}

// mayIssue reports whether nothing but the pace keeps the operation back. An
// operation with a flush is alone, so that the flush covers all before it.
func (w *writer) mayIssue(op workload.Op) bool {
	if w.stopping || len(w.buffers) == 0 || w.next >= w.base+w.confirmed+workload.Window {
		return false
	}
	if op.Flush {
		return len(w.inFlight) == 0
	}
	for _, other := range w.inFlight {
		// Never further ahead of the slowest than the depth: the checker
		// concludes from a write that is missing that none after it was begun.
		if other.Flush || other.Overlaps(op) || op.Seq >= other.Seq+w.depth {
			return false
		}
	}
	return true
}

func (w *writer) issue(op workload.Op) {
	last := len(w.buffers) - 1
	buf := w.buffers[last]
	w.buffers = w.buffers[:last]
	w.inFlight[op.Seq] = op
	w.next++
	go func() {
		if op.Kind == workload.Write {
			for i := range op.Count {
				workload.PutRecord(buf[i*workload.BlockSize:], w.stream.Seed, op.Seq, op.Block+i)
			}
		}
		start := time.Now()
		flush, err := w.disk.do(op, buf)
		w.results <- result{op: op, buf: buf, latency: time.Since(start), flush: flush, err: err}
	}()
}

func (w *writer) report(r result) {
	delete(w.inFlight, r.op.Seq)
	w.buffers = append(w.buffers, r.buf)
	report := workload.Report{
		Type: workload.ReportAck, Disk: w.name, Op: &r.op,
		LatencyUS: uint64(r.latency.Microseconds()), FlushUS: uint64(r.flush.Microseconds()), MonotonicUS: monotonicUS(),
	}
	if r.err != nil {
		report.Type, report.Text = workload.ReportIOError, r.err.Error()
		// A failed operation is never acknowledged, and would otherwise take
		// one place in the window for good.
		w.confirmed++
	}
	w.port.send(report)
}

// monotonicUS is the guest's monotonic clock in microseconds.
func monotonicUS() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail for this clock
	return uint64(ts.Nano()) / 1000
}
