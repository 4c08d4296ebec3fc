// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// UseLockManager gives the hypervisor a lock manager. If why is not empty, the lock manager
// refuses every switch with this reason.
func (f *Fake) UseLockManager(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks = locks{on: true, why: why, elsewhere: map[string]bool{}}
}

// LeaseElsewhere sets whether a domain of another host has the lease of an image.
func (f *Fake) LeaseElsewhere(path string, taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks.elsewhere[path] = taken
}

// Leased reports whether a domain of this host has the lease of an image.
func (f *Fake) Leased(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leasedBy(path) != nil
}

func (f *Fake) leasedBy(path string) *domain {
	for _, dom := range f.domains {
		if f.locks.on && dom.hasLease(path) {
			return dom
		}
	}
	return nil
}

func (d *domain) hasLease(path string) bool {
	for i := range d.Live {
		disk := &d.Live[i]
		if d.State == hv.StateRunning && !disk.ReadOnly && disk.Top().Path == path {
			return true
		}
		if j := d.jobs[disk.Target]; d.State.Active() && j != nil && j.dst.Path == path {
			return true
		}
	}
	return false
}

func (f *Fake) takeLeases(dom *domain, disks []hv.Disk) error {
	for i := range disks {
		disk := &disks[i]
		path := disk.Top().Path
		if !f.locks.on || disk.ReadOnly || disk.Shareable || path == "" {
			continue
		}
		if by := f.leasedBy(path); f.locks.elsewhere[path] || by != nil && by != dom {
			return fmt.Errorf("%w: resource busy: Lockspace resource '%s' is locked", hv.ErrBusy, path)
		}
	}
	return nil
}

// CanSwitch implements hv.Hypervisor.
func (f *Fake) CanSwitch(ctx context.Context, _ ...string) error {
	return f.call(ctx, "CanSwitch", func() error {
		if f.locks.why != "" {
			return fmt.Errorf("%w: %s", hv.ErrUnsupported, f.locks.why)
		}
		return nil
	})
}
