// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// guestTimeout bounds what a guest does without libvirt: a boot, a power-off.
// TCG on a busy machine is slow.
const guestTimeout = 3 * time.Minute

// wait waits until cond, which is called with mu held, is true. A guest whose
// program gave up will never make it so.
func (l *link) wait(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Limit(guestTimeout))
	defer cancel()
	for {
		l.mu.Lock()
		done, fatal, changed := cond(), l.fatal, l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		if fatal != nil {
			return fatal
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// command waits until the guest has booted and passes it a command.
func (l *link) command(ctx context.Context, c workload.Command) error {
	if _, err := l.disks(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.send(c)
	return nil
}

// ending runs what ends the present boot of the guest without ending QEMU. From
// then on commands wait for the next boot.
func (l *link) ending(end func() error) error {
	l.mu.Lock()
	boot := l.boot
	l.mu.Unlock()
	if err := end(); err != nil {
		return err
	}
	l.update(func() { l.stale = boot })
	return nil
}

func (l *link) disks(ctx context.Context) (seen []workload.GuestDisk, err error) {
	err = l.wait(ctx, "no hello from the guest", func() bool {
		seen = l.seen
		return l.boot != "" && l.boot != l.stale
	})
	return seen, err
}

// waitClosed waits until QEMU has closed its end, and all that came before that is taken in.
func (l *link) waitClosed(ctx context.Context) error {
	return l.wait(ctx, "QEMU has not closed its end", func() bool { return l.conn == nil })
}

// waitDisk waits until the disk with this serial is, or is not, in the guest.
func (l *link) waitDisk(ctx context.Context, serial string, there bool) (found workload.GuestDisk, err error) {
	const shown = 20 // VIRTIO_BLK_ID_BYTES
	serial = serial[:min(len(serial), shown)]
	err = l.wait(ctx, "the disks of the guest stay as they are", func() bool {
		i := slices.IndexFunc(l.seen, func(d workload.GuestDisk) bool { return d.Serial == serial })
		if i >= 0 {
			found = l.seen[i]
		}
		return l.boot != "" && l.boot != l.stale && (i >= 0) == there
	})
	return found, err
}

// add begins a history for a disk that comes later, or comes again.
func (l *link) add(ctx context.Context, name string, d Disk) error {
	w, err := newHostWriter(ctx, d)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.writers[name]; old != nil && old.running {
		return fmt.Errorf("a writer runs on %s", name)
	}
	l.writers[name] = w
	return nil
}

func (l *link) write(disk string, load Load) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writers[disk]
	if w == nil {
		return fmt.Errorf("guest has no disk %s", disk)
	}
	w.wanted = &load
	if w.running {
		l.send(workload.Command{
			Type: workload.CommandPace, Disk: disk, IntervalUS: uint64(load.Interval.Microseconds()),
		})
	}
	l.startWanted(disk)
	return nil
}

func (l *link) quiesce(ctx context.Context, disk string) error {
	l.mu.Lock()
	w := l.writers[disk]
	if w == nil {
		l.mu.Unlock()
		return fmt.Errorf("guest has no disk %s", disk)
	}
	w.wanted = nil
	if w.running {
		l.send(workload.Command{Type: workload.CommandStop, Disk: disk})
	}
	l.mu.Unlock()
	return l.wait(ctx, "the writer did not stop", func() bool { return !w.running })
}

func (l *link) waitAcks(ctx context.Context, disk string, n int) error {
	l.mu.Lock()
	w := l.writers[disk]
	if w == nil {
		l.mu.Unlock()
		return fmt.Errorf("guest has no disk %s", disk)
	}
	want := len(w.history.Acks) + n
	l.mu.Unlock()
	return l.wait(ctx, "too few acknowledgements", func() bool { return len(w.history.Acks) >= want })
}

// history returns a copy of what is known; nil for a disk that there is not.
func (l *link) history(disk string) *History {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writers[disk]
	if w == nil {
		return nil
	}
	return w.history.clone()
}
