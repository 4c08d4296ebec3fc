// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOn implements hv.Hypervisor.
func (f *Fake) PowerOn(ctx context.Context, id string) error {
	return f.call(ctx, "PowerOn", func() error {
		dom, err := f.find(id)
		switch {
		case err != nil:
			return err
		case dom.lost():
			return hv.ErrInUse
		case dom.State.Active():
			return nil
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
		if dom.State.Active() && !dom.lost() {
			f.kill(dom)
			f.lifecycle(dom, "stopped")
		}
		return nil
	})
}
