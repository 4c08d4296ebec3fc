// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOn implements hv.Hypervisor.
func (f *Fake) PowerOn(ctx context.Context, id string) error {
	return f.call(ctx, "PowerOn", func() error {
		dom, err := f.find(id)
		if err != nil || dom.State.Active() {
			return err
		}
		return f.start(id)
	})
}

// PowerOff implements hv.Hypervisor.
func (f *Fake) PowerOff(ctx context.Context, id string) error {
	return f.call(ctx, "PowerOff", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		if dom.State.Active() {
			f.kill(dom)
			f.lifecycle(dom, "stopped")
		}
		return nil
	})
}

// askHook asks OnStart. It is not kept from calling the Fake, but for changes of
// the domain's disks: these wait until the start is over, as they do for libvirt's
// own job.
func (f *Fake) askHook(id string) error {
	dom := f.domains[id]
	if f.OnStart == nil || dom == nil {
		return nil
	}
	f.awaitStart(dom)
	over := make(chan struct{})
	dom.starting = over
	f.mu.Unlock()
	defer func() {
		f.mu.Lock() // and is held until the start is over
		dom.starting = nil
		close(over)
	}()
	if err := f.OnStart(id); err != nil {
		return fmt.Errorf("%w: hook: %w", hv.ErrGuarded, err)
	}
	return nil
}

// awaitStart waits for a start of the domain that asks the hook. The caller holds
// mu.
func (f *Fake) awaitStart(dom *domain) {
	for dom.starting != nil {
		over := dom.starting
		f.mu.Unlock()
		<-over
		f.mu.Lock()
	}
}
