// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// PowerOn implements hv.Hypervisor. It may read the RAM of a managed save image, which it removes,
// and opens all disks, so its duration depends on the storage. It creates the NVRAM of a UEFI
// guest.
func (c *Conn) PowerOn(ctx context.Context, id string) error {
	err := c.modifyByItself(ctx, longCallTimeout, id, keptSaves|keptNVRAM, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainCreate(dom)
	})
	if err == nil {
		return nil
	}
	// libvirt refuses an active domain with the error of every other refusal.
	if said(err, golibvirt.ErrOperationInvalid) {
		if dom, readErr := c.Domain(context.WithoutCancel(ctx), id); readErr == nil && dom.State.Active() {
			return nil
		}
	}
	return fmt.Errorf("power on domain %s: %w", id, err)
}

// powerOffTimeout is above libvirt's wait for a killed process: 40 s, and 2 s more for each host
// device of the guest.
const powerOffTimeout = 2 * time.Minute

// PowerOff implements hv.Hypervisor. libvirt sends SIGTERM to the process and then kills it. A
// process that hangs on its storage does not delay other domains.
func (c *Conn) PowerOff(ctx context.Context, id string) error {
	err := c.modifyByItself(ctx, powerOffTimeout, id, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainDestroy(dom)
	})
	if err == nil {
		return nil
	}
	err = c.changed(ctx, "power off", id, "", err)
	// libvirt refuses a domain that is off with the error of every other refusal.
	if dom, readErr := c.Domain(ctx, id); readErr == nil && dom.State == hv.StateStopped {
		return nil
	}
	return err
}

// Shutdown implements hv.Hypervisor. By default libvirt would wait for a guest agent that may
// hang, so it selects the ACPI method.
func (c *Conn) Shutdown(ctx context.Context, id string) error {
	err := c.change(ctx, "shut down", id, "", func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainShutdownFlags(dom, golibvirt.DomainShutdownAcpiPowerBtn)
	})
	if errors.Is(err, hv.ErrNotActive) {
		return nil
	}
	return err
}

// RebootGuest implements hv.Hypervisor. The guest shuts down as with Shutdown, and libvirt then
// resets the machine, in the same process.
func (c *Conn) RebootGuest(ctx context.Context, id string) error {
	return c.change(ctx, "reboot", id, "", func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainReboot(dom, golibvirt.DomainRebootAcpiPowerBtn)
	})
}
