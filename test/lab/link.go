// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// link is the host's end of a guest's port. One goroutine reads from it for as
// long as the guest is defined, over all its boots; a line that has arrived is
// in the history and in the log before anything else happens.
type link struct {
	log    *os.File
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when anything below changes
	sockets []string      // patterns: a socket that libvirt chose has the domain's number in it
	conn    net.Conn      // nil while there is no connection
	root    string        // what it said it booted from
	boot    string        // of the guest that said hello on conn; empty before
	before  string        // the boot of the QEMU before, which may go on in this one
	stale   string        // a boot that was told to end, by a reset for example
	seen    []workload.GuestDisk
	writers map[string]*hostWriter
	// counters are those that were ever asked for, by disk.
	counters map[string]*hostCounter
	fatal    error // what ended the guest's program, in this boot
}

// hostWriter is what the host knows of the writer on one disk.
type hostWriter struct {
	history *History
	wanted  *Load // nil: none shall run
	running bool  // the guest was told to start and has not said it stopped
	ran     bool  // running, when the QEMU before ended
}

// openLink connects to the guest, now and whenever it is started, until close.
func openLink(ctx context.Context, disks []Disk, sockets []string, logPath string) (*link, error) {
	writers := make(map[string]*hostWriter)
	for i, d := range disks {
		w, err := newHostWriter(ctx, d)
		if err != nil {
			return nil, err
		}
		writers[target(i)] = w
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open guest log: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &link{
		sockets: sockets, log: log, cancel: cancel, ended: make(chan struct{}),
		changed: make(chan struct{}), writers: writers, counters: make(map[string]*hostCounter),
	}
	go l.run(ctx)
	return l, nil
}

func newHostWriter(ctx context.Context, d Disk) (*hostWriter, error) {
	blocks, err := volumeBlocks(ctx, d.Volume)
	if err != nil {
		return nil, fmt.Errorf("read size of %s: %w", d.Path, err)
	}
	if d.Mix == (workload.Mix{}) {
		d.Mix = workload.DefaultMix
	}
	part := blocks / max(d.Parts, 1)
	stream := workload.Stream{Seed: d.Seed, First: d.Part * part, Blocks: part, Mix: d.Mix}
	if d.Interleaved {
		stream.First, stream.Step = d.Part, d.Parts
	}
	return &hostWriter{history: &History{
		Stream: stream, Volume: blocks, Fill: d.Fill,
	}}, nil
}

func (l *link) close() error {
	l.cancel()
	<-l.ended
	return l.log.Close()
}

// run connects, again and again: every start of the domain is a new QEMU.
func (l *link) run(ctx context.Context) {
	defer close(l.ended)
	for ctx.Err() == nil {
		conn, err := l.dial(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		l.serve(conn)
		stop()
		_ = conn.Close() // QEMU has closed its end
	}
}

func (l *link) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	sockets := l.sockets
	l.mu.Unlock()
	var paths []string
	for _, pattern := range sockets {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	err := os.ErrNotExist
	for _, path := range paths {
		var conn net.Conn
		var dialer net.Dialer
		if conn, err = dialer.DialContext(ctx, "unix", path); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// serve reads from one QEMU until it ends.
func (l *link) serve(conn net.Conn) {
	l.update(func() { l.conn, l.boot, l.fatal = conn, "", nil })
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		now := time.Now()
		var r workload.Report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // cut short by a reset
		}
		// The log is for people; what counts is in memory.
		_, _ = fmt.Fprintf(l.log, "%s %s\n", now.UTC().Format(time.RFC3339Nano), lines.Bytes())
		l.update(func() { l.take(r, now) })
	}
	l.update(func() {
		if l.boot != "" {
			l.before = l.boot
		}
		l.conn, l.boot = nil, ""
		for _, w := range l.writers {
			w.ran, w.running = w.ran || w.running, false
		}
	})
}

// update changes what mu guards and wakes those who wait for it.
func (l *link) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// take acts on a report. The caller holds mu.
func (l *link) take(r workload.Report, now time.Time) {
	if l.boot == "" && r.Type != workload.ReportHello {
		l.goOn()
	}
	w := l.writers[r.Disk]
	switch {
	case r.Type == workload.ReportHello:
		l.hello(r)
	case r.Type == workload.ReportDisks:
		l.plugged(r.Disks)
	case r.Type == workload.ReportFatal:
		l.fatal = errors.New("guest gave up: " + r.Text)
	case r.Type == workload.ReportCounted || r.Type == workload.ReportUncounted:
		l.counted(r)
	case w == nil || l.boot == "":
		// Nothing that this host asked for.
	case r.Type == workload.ReportAck:
		n := w.history.acknowledge(Ack{
			Op: *r.Op, HostTime: now,
			Latency:   time.Duration(r.LatencyUS) * time.Microsecond,
			Flush:     time.Duration(r.FlushUS) * time.Microsecond,
			GuestTime: time.Duration(r.MonotonicUS) * time.Microsecond,
		})
		if n%(workload.Window/4) == 0 {
			l.send(workload.Command{Type: workload.CommandConfirm, Disk: r.Disk, Confirmed: n})
		}
	case r.Type == workload.ReportIOError:
		w.history.fail(*r.Op, r.Text)
	case r.Type == workload.ReportStopped:
		w.history.session().Ended = true
		w.running = false
		l.startWanted(r.Disk)
	}
}

// goOn takes up a boot that goes on in a new QEMU: its guest was saved and restored,
// since one that boots says hello before anything else. The caller holds mu.
func (l *link) goOn() {
	l.boot = l.before
	for _, w := range l.writers {
		w.running, w.ran = w.ran, false
	}
}

// hello begins a new boot of the guest. The caller holds mu.
func (l *link) hello(r workload.Report) {
	l.boot, l.root, l.seen, l.fatal = r.Boot, r.Root, r.Disks, nil
	l.before = ""
	for _, w := range l.writers {
		w.ran = false
	}
	for _, d := range r.Disks {
		if w := l.writers[d.Name]; w != nil {
			w.running = false
			l.startWanted(d.Name)
		}
		l.countAnew(d.Name)
	}
}

// plugged notes which disks the guest has now. Where one has gone, its writer is
// told to end; it would fail for ever. The caller holds mu.
func (l *link) plugged(now []workload.GuestDisk) {
	l.seen = now
	for name, w := range l.writers {
		switch there := slices.ContainsFunc(now, func(d workload.GuestDisk) bool { return d.Name == name }); {
		case there:
			l.startWanted(name)
		case w.running:
			w.wanted = nil
			l.send(workload.Command{Type: workload.CommandStop, Disk: name})
		}
	}
}

// startWanted has the guest start a writer if one is wanted and none runs. The
// caller holds mu.
func (l *link) startWanted(disk string) {
	w := l.writers[disk]
	there := slices.ContainsFunc(l.seen, func(d workload.GuestDisk) bool { return d.Name == disk })
	if w.wanted == nil || w.running || l.boot == "" || !there {
		return
	}
	w.running = true
	stream := w.history.Stream
	l.send(workload.Command{
		Type: workload.CommandStart, Disk: disk, Stream: &stream, Base: w.history.begin(w.wanted.Depth),
		Depth: w.wanted.Depth, IntervalUS: uint64(w.wanted.Interval.Microseconds()),
	})
}

// send passes a command to the guest. The caller holds mu. If it fails, QEMU
// has ended, and serve is about to notice.
func (l *link) send(c workload.Command) {
	c.Boot = l.boot
	line, err := json.Marshal(c)
	if err == nil && l.conn != nil {
		_, err = l.conn.Write(append(line, '\n'))
	}
	if err != nil {
		_, _ = fmt.Fprintf(l.log, "send %s: %v\n", c.Type, err)
	}
}

// Load is what a writer is asked to do.
type Load struct {
	Interval time.Duration // between submissions; 0 is as fast as it can
	Depth    int           // operations in flight at most; 0 is 1
}

// Counting is what a guest is asked to do in a region of a disk, see workload.
type Counting struct {
	Region   uint64 // its first block
	Self     uint64 // which of the region's guests it is
	Interval time.Duration
}

// hostCounter is what the host knows of a counter.
type hostCounter struct {
	wanted  *Counting // nil: none shall run
	running bool
	values  []uint64
}

// counted acts on the report of a counter. The caller holds mu.
func (l *link) counted(r workload.Report) {
	n := l.counters[r.Disk]
	switch {
	case n == nil:
	case r.Type == workload.ReportCounted:
		n.values = append(n.values, r.Value)
	default:
		n.running = false
	}
}

// startCounting has the guest begin to count if that is wanted and it does not. The caller
// holds mu.
func (l *link) startCounting(disk string) {
	n := l.counters[disk]
	if n == nil || n.wanted == nil || n.running || l.boot == "" {
		return
	}
	n.running = true
	l.send(workload.Command{
		Type: workload.CommandCount, Disk: disk, Region: n.wanted.Region, Self: n.wanted.Self, IntervalUS: uint64(n.wanted.Interval.Microseconds()),
	})
}

// countAnew begins again what a boot that is over did. The caller holds mu.
func (l *link) countAnew(disk string) {
	if n := l.counters[disk]; n != nil {
		n.running = false
		l.startCounting(disk)
	}
}
