// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/volferry/volferry/test/lab/workload"
)

// Count has the guest count up in a region of a disk that it has, from now on and in every
// boot. It does not wait for the guest.
func (g *Guest) Count(disk string, c Counting) {
	g.link.update(func() {
		n := g.link.counters[disk]
		if n == nil {
			n = &hostCounter{}
			g.link.counters[disk] = n
		}
		n.wanted = &c
		g.link.startCounting(disk)
	})
}

// WaitCounting waits until the guest has counted up n times more.
func (g *Guest) WaitCounting(ctx context.Context, disk string, n int) error {
	want := len(g.Counted(disk)) + n
	err := g.link.wait(ctx, "it was not counted", func() bool { return len(g.link.counters[disk].values) >= want })
	if err != nil {
		return fmt.Errorf("wait for guest %s to count on %s: %w%s", g.Name, disk, err, g.consoleTail())
	}
	return nil
}

// StopCounting ends the counting, and waits until it has ended.
func (g *Guest) StopCounting(ctx context.Context, disk string) error {
	var n *hostCounter
	g.link.update(func() {
		if n = g.link.counters[disk]; n.running {
			g.link.send(workload.Command{Type: workload.CommandUncount, Disk: disk})
		}
		n.wanted = nil
	})
	if err := g.link.wait(ctx, "the counter did not stop", func() bool { return !n.running }); err != nil {
		return fmt.Errorf("stop counting on %s of guest %s: %w%s", disk, g.Name, err, g.consoleTail())
	}
	return nil
}

// Counted is what the guest has counted up to, each time.
func (g *Guest) Counted(disk string) []uint64 {
	g.link.mu.Lock()
	defer g.link.mu.Unlock()
	return slices.Clone(g.link.counters[disk].values)
}

// ReadCount reads the number of the region that begins at a block of a raw image.
func ReadCount(path string, region uint64) (workload.Count, error) {
	f, err := os.Open(path)
	if err != nil {
		return workload.Count{}, err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, workload.BlockSize)
	if _, err := f.ReadAt(block, int64(workload.CountBlock(region)*workload.BlockSize)); err != nil {
		return workload.Count{}, err
	}
	return workload.ReadCount(block)
}
