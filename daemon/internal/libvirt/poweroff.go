// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOff implements hv.Hypervisor. libvirt asks the process with SIGTERM and
// then kills it, so that it takes as long as a change may.
func (c *Conn) PowerOff(ctx context.Context, id string) error {
	err := c.change(ctx, c.callTimeout, "power off", id, "", func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainDestroy(dom)
	})
	if err == nil {
		return nil
	}
	// One that is off already is refused in the words of every refusal.
	if dom, readErr := c.Domain(ctx, id); readErr == nil && dom.State == hv.StateStopped {
		return nil
	}
	return err
}
