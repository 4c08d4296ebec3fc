// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/volferry/volferry/test/bench/load"
	"github.com/volferry/volferry/test/bench/meter"
)

// usage is what a stretch of time cost.
type usage struct {
	wall     time.Duration
	registry time.Duration // CPU time of the registry, or of etcd in its place
	load     time.Duration // CPU time of this program
	others   time.Duration // CPU time of everybody else on the machine
	written  int64         // bytes that the registry gave to the disk: the log of commits, and the file at checkpoints
	commits  commits       // of the registry; none of etcd
}

// cpuTimes are CPU times since their beginnings.
type cpuTimes struct {
	at                      time.Time
	registry, load, machine time.Duration
}

// usageWithin measures over a window.
func (b *bench) usageWithin(ctx context.Context, w load.Window) (usage, error) {
	if err := load.Until(ctx, w.Begin); err != nil {
		return usage{}, err
	}
	committed, commitsErr := b.readCommits(ctx)
	written, writtenErr := meter.WrittenBy(b.registry.PID())
	before, err := b.cpuTimes()
	if err := errors.Join(commitsErr, writtenErr, err); err != nil {
		return usage{}, err
	}
	if err := load.Until(ctx, w.End); err != nil {
		return usage{}, err
	}
	after, err := b.cpuTimes()
	u := usage{wall: after.at.Sub(before.at), registry: after.registry - before.registry, load: after.load - before.load}
	u.others = max(0, after.machine-before.machine-u.registry-u.load)
	writtenAfter, writtenErr := meter.WrittenBy(b.registry.PID())
	u.written = writtenAfter - written
	committedAfter, commitsErr := b.readCommits(ctx)
	u.commits = committedAfter.since(committed)
	return u, errors.Join(err, writtenErr, commitsErr)
}

func (b *bench) cpuTimes() (t cpuTimes, err error) {
	var errs [3]error
	t.at = time.Now()
	t.registry, errs[0] = meter.ProcessTime(b.registry.PID())
	t.load, errs[1] = meter.OwnTime()
	t.machine, errs[2] = meter.MachineTime()
	return t, errors.Join(errs[:]...)
}

// syncTimes says how long the disk alone takes to make 4 KiB more of a file
// durable: no answer of a single client can come sooner.
func syncTimes(dir string) (p50, p99 time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	times := make([]time.Duration, 500)
	block := make([]byte, 4096)
	for i := range times {
		begin := time.Now()
		_, writeErr := f.Write(block)
		if err := errors.Join(writeErr, syscall.Fdatasync(int(f.Fd()))); err != nil {
			return 0, 0, fmt.Errorf("measure the disk: %w", err)
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}
