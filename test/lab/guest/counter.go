// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/lab/workload"
)

// counter counts the number of a region up, again and again, each time under the lock of the
// region, and reports each time once that is durable.
type counter struct {
	name         string
	disk         *disk
	port         *port
	region, self uint64
	interval     time.Duration
	buf          []byte
	stopping     chan struct{}
	ended        chan struct{}
}

func newCounter(p *port, c workload.Command) (*counter, error) {
	if c.Self >= workload.Counters {
		return nil, fmt.Errorf("a region is of %d guests, and this one is %d", workload.Counters, c.Self)
	}
	d, err := openDisk(c.Disk)
	if err != nil {
		return nil, err
	}
	buf, err := newBuffer(1)
	if err != nil {
		return nil, err
	}
	return &counter{
		name: c.Disk, disk: d, port: p, region: c.Region, self: c.Self, buf: buf,
		interval: time.Duration(c.IntervalUS) * time.Microsecond, stopping: make(chan struct{}), ended: make(chan struct{}),
	}, nil
}

// stop ends the counter and waits for the end.
func (c *counter) stop() {
	close(c.stopping)
	<-c.ended
}

// run is the counter's goroutine.
func (c *counter) run() {
	defer close(c.ended)
	defer c.disk.close()
	for {
		select {
		case <-c.stopping:
			c.port.send(workload.Report{Type: workload.ReportUncounted, Disk: c.name})
			return
		case <-time.After(c.interval):
		}
		if err := c.once(); err != nil {
			c.port.send(workload.Report{Type: workload.ReportFatal, Disk: c.name, Text: "count: " + err.Error()})
			return
		}
	}
}

// once counts up once. A boot that had the lock and was cut off has left its ticket: the first
// thing that is written is another one in its place.
func (c *counter) once() error {
	if err := c.lock(); err != nil {
		return err
	}
	if err := c.read(workload.CountBlock(c.region)); err != nil {
		return err
	}
	n, err := workload.ReadCount(c.buf)
	if err != nil {
		return err
	}
	n.Value++
	n.By[c.self]++
	n.Put(c.buf)
	if err := c.write(workload.CountBlock(c.region)); err != nil {
		return err
	}
	if err := unix.Fdatasync(c.disk.fd); err != nil {
		return err
	}
	if err := c.put(workload.Ticket{}); err != nil {
		return err
	}
	c.port.send(workload.Report{Type: workload.ReportCounted, Disk: c.name, Value: n.Value, MonotonicUS: monotonicUS()})
	return nil
}

// lock waits for this guest's turn.
func (c *counter) lock() error {
	if err := c.put(workload.Ticket{Choosing: true}); err != nil {
		return err
	}
	other, err := c.other()
	if err != nil {
		return err
	}
	mine := workload.Ticket{Number: other.Number + 1}
	if err := c.put(mine); err != nil {
		return err
	}
	for {
		other, err := c.other()
		if err != nil || !other.Choosing && mine.Before(c.self, other, c.otherGuest()) {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

func (c *counter) otherGuest() uint64 { return workload.Counters - 1 - c.self }

func (c *counter) other() (workload.Ticket, error) {
	if err := c.read(workload.TicketBlock(c.region, c.otherGuest())); err != nil {
		return workload.Ticket{}, err
	}
	return workload.ReadTicket(c.buf)
}

func (c *counter) put(t workload.Ticket) error {
	t.Put(c.buf)
	return c.write(workload.TicketBlock(c.region, c.self))
}

func (c *counter) write(block uint64) error {
	return c.disk.write(c.buf, int64(block*workload.BlockSize))
}

// read reads a whole block.
func (c *counter) read(block uint64) error {
	for {
		n, err := unix.Pread(c.disk.fd, c.buf, int64(block*workload.BlockSize))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n != len(c.buf):
			return fmt.Errorf("read %d bytes of block %d", n, block)
		}
		return nil
	}
}
