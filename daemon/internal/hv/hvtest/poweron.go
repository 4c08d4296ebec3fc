// SPDX-License-Identifier: Apache-2.0

package hvtest

import "context"

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
