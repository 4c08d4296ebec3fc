// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Suspend implements hv.Hypervisor.
func (f *Fake) Suspend(ctx context.Context, id string) error {
	return f.setRunning(ctx, "Suspend", id, true)
}

// Resume implements hv.Hypervisor.
func (f *Fake) Resume(ctx context.Context, id string) error {
	return f.setRunning(ctx, "Resume", id, false)
}

func (f *Fake) setRunning(ctx context.Context, name, id string, paused bool) error {
	return f.call(ctx, name, func() error {
		dom, err := f.findActive(id)
		if err != nil {
			return err
		}
		switch {
		case dom.PauseReason == hv.PauseAsleep:
			return errors.New("domain is pmsuspended")
		case dom.PauseReason == hv.PauseCrashed && paused:
			return nil // libvirt reports success, and the guest stays crashed
		}
		if !paused && dom.byUser {
			f.violate("domain %s was resumed though a person had paused it", dom.Name)
		}
		for target, j := range dom.jobs {
			if paused && f.silent[j.dst.Path] {
				f.violate("domain %s was suspended with a job on %s into %s, whose server does not answer: QEMU stands still until it does", dom.Name, target, j.dst.Path)
			}
		}
		if !paused {
			if err := f.takeLeases(dom, dom.Live); err != nil {
				return err
			}
		}
		f.pause(dom, paused, hv.PauseUser)
		return nil
	})
}

// LiveWriteLimit implements hv.Hypervisor.
func (f *Fake) LiveWriteLimit(ctx context.Context, id, target string) (limit int64, err error) {
	err = f.call(ctx, "LiveWriteLimit", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err == nil {
			limit = dom.limits[target]
		}
		return err
	})
	return limit, err
}

// PutWriteLimit implements hv.Hypervisor. The limit is recorded and slows nothing.
func (f *Fake) PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error {
	return f.call(ctx, "PutWriteLimit", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err == nil {
			dom.limits[target] = bytesPerSecond
		}
		return err
	})
}

// LimitByUser plays the owner of a running domain who limits the writes to a disk.
func (f *Fake) LimitByUser(id, target string, bytesPerSecond int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, _, err := f.liveDisk(id, target)
	if err == nil {
		dom.limits[target], dom.ownLimits[target] = bytesPerSecond, bytesPerSecond
	}
	return err
}

// WriteLimit returns the limit of a disk; 0 means none.
func (f *Fake) WriteLimit(id, target string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dom := f.domains[id]; dom != nil && dom.State.Active() {
		return dom.limits[target]
	}
	return 0
}

// DiskStats implements hv.Hypervisor.
func (f *Fake) DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error) {
	var stats hv.DiskStats
	err := f.call(ctx, "DiskStats", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		img, err := f.open(disk.Top().Path)
		if err != nil {
			return err
		}
		stats = *dom.statsOf(target)
		stats.CapacityBytes = sizeOf(disk.Top(), img)
		if size, known := dom.sizes[target]; known {
			stats.CapacityBytes = size
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &stats, nil
}
