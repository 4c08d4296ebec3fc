// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// Volume names the image that a writer writes to, to those that read it.
type Volume struct {
	Path   string // of a file or a block device
	Format string // raw or qcow2; never guessed from the content
	// SliceBytes, where it is not 0, is how much of what is at Path the volume is, from
	// its beginning.
	SliceBytes int64
	// LUKS, if not nil, opens a raw image that QEMU encrypts.
	LUKS *LUKS
}

// Fill says with what a volume was filled before any writer ran: records for
// Percent of its blocks, zeroes for the others.
type Fill struct {
	Seed    uint64
	Percent uint64
}

// Ack is the acknowledgement of one operation.
type Ack struct {
	Op workload.Op
	// Latency and GuestTime are by the guest's clock, which stands still while
	// the guest is paused.
	Latency   time.Duration
	GuestTime time.Duration
	// Flush is the part of Latency that the flush behind the operation took.
	Flush time.Duration
	// HostTime is when the acknowledgement reached the host.
	HostTime time.Time
}

// Session is one run of a writer: from a start to a stop, or to the end of the
// guest's boot.
type Session struct {
	Base   uint64   // the first operation
	Depth  uint64   // operations in flight at most
	Acked  uint64   // number of acknowledgements
	Failed []uint64 // operations that the guest saw fail
	// Ended: the writer said that it had nothing in flight any more.
	Ended bool
}

// next is the first operation that this session cannot have begun, so that the
// next session may.
func (s Session) next() uint64 {
	next := s.Base + s.Acked + uint64(len(s.Failed))
	if !s.Ended {
		next += workload.Window
	}
	return next
}

// History is everything that is known of the operations on one volume. It is
// what Check holds a volume against. The zero value with a Stream is a volume
// that nobody has written to.
type History struct {
	Stream workload.Stream
	// Volume is the size of the volume in blocks, where the stream is on a part of
	// it; 0 is the stream's. Only that part is judged.
	Volume   uint64
	Fill     Fill
	Sessions []Session
	Acks     []Ack // in the order of their arrival
	// Errors are the operations that failed in the guest, in words.
	Errors []string
}

// volumeBlocks is the size of the volume.
func (h *History) volumeBlocks() uint64 { return cmp.Or(h.Volume, h.Stream.Blocks) }

// covers reports whether a block is in the part that the history is of.
func (h *History) covers(block uint64) bool {
	return h.Stream.Covers(block)
}

// clone returns a copy that later acknowledgements do not change.
func (h *History) clone() *History {
	c := *h
	c.Sessions, c.Acks, c.Errors = slices.Clone(h.Sessions), slices.Clone(h.Acks), slices.Clone(h.Errors)
	return &c
}

// begin opens a session and returns its first operation.
func (h *History) begin(depth int) uint64 {
	var base uint64
	if n := len(h.Sessions); n > 0 {
		base = h.Sessions[n-1].next()
	}
	h.Sessions = append(h.Sessions, Session{Base: base, Depth: uint64(max(depth, 1))})
	return base
}

// acknowledge adds an acknowledgement to the session that runs and returns how
// many it has.
func (h *History) acknowledge(a Ack) uint64 {
	h.Acks = append(h.Acks, a)
	s := h.session()
	s.Acked++
	return s.Acked
}

// fail adds an operation that the guest saw fail.
func (h *History) fail(op workload.Op, text string) {
	s := h.session()
	s.Failed = append(s.Failed, op.Seq)
	h.Errors = append(h.Errors, fmt.Sprintf("operation %+v: %s", op, text))
}

// session is the one that runs, or ran last.
func (h *History) session() *Session { return &h.Sessions[len(h.Sessions)-1] }
