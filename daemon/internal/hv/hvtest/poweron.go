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

// askHook asks OnStart, or OnStartToken of a start that has a token. It is not kept from calling the Fake, but for changes of
// the domain's disks: these wait until the start is over, as they do for libvirt's
// own job.
func (f *Fake) askHook(id, token string) error {
	dom, ask := f.domains[id], f.OnStart
	if token != "" && f.OnStartToken != nil {
		ask = func(id string) error { return f.OnStartToken(id, token) }
	}
	if ask == nil || dom == nil {
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
	if err := ask(id); err != nil {
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
