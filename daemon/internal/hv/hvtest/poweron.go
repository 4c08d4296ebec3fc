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

// askHook asks OnStart. It is not kept from calling the Fake.
func (f *Fake) askHook(id string) error {
	if f.OnStart == nil {
		return nil
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	if err := f.OnStart(id); err != nil {
		return fmt.Errorf("%w: hook: %w", hv.ErrGuarded, err)
	}
	return nil
}
