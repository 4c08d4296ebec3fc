// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

const asksOfSlow = 2

// SetShutdown sets the guest's reaction to requests from now on, including requests that it has not
// followed yet.
func (f *Fake) SetShutdown(id string, how Shutdown) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.shutdown = how
	return nil
}

// Shutdown implements hv.Hypervisor.
func (f *Fake) Shutdown(ctx context.Context, id string) error {
	return f.call(ctx, "Shutdown", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		if dom.State.Active() {
			dom.asked, dom.thenReboot = dom.asked+1, false
		}
		return nil
	})
}

// RebootGuest implements hv.Hypervisor.
func (f *Fake) RebootGuest(ctx context.Context, id string) error {
	return f.call(ctx, "RebootGuest", func() error {
		dom, err := f.findActive(id)
		if err != nil {
			return err
		}
		dom.asked, dom.thenReboot = dom.asked+1, true
		return nil
	})
}

// Reboots counts the restarts of the guest since its process started.
func (f *Fake) Reboots(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dom := f.domains[id]; dom != nil {
		return dom.reboots
	}
	return 0
}

func (f *Fake) obey(dom *domain) {
	if dom.asked == 0 || dom.State != hv.StateRunning || dom.shutdown == ShutdownIgnores ||
		dom.shutdown == ShutdownSlow && dom.asked < asksOfSlow {
		return
	}
	if dom.thenReboot {
		f.reboot(dom)
		return
	}
	f.kill(dom)
	f.lifecycle(dom, "shutdown")
	f.lifecycle(dom, "stopped")
}

func (f *Fake) reboot(dom *domain) {
	dom.asked = 0
	dom.reboots++
	for _, target := range slices.Sorted(maps.Keys(dom.leaving)) {
		f.release(dom, target)
	}
}
