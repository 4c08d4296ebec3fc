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

// Suspend pauses a running domain. libvirt accepts it for a paused domain.
func (p *power) Suspend(ctx context.Context, id string) error {
	return p.calls.inWindow(ctx, "suspend", id, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainSuspend(dom)
	})
}

func (p *power) Resume(ctx context.Context, id string) error {
	resume := func() error {
		return p.calls.inWindow(ctx, "resume", id, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainResume(dom)
		})
	}
	err := resume()
	if said(err, golibvirt.ErrResourceBusy) {
		err = p.leases.resumeWithLeases(ctx, id, err, resume)
	}
	if err == nil || !said(err, golibvirt.ErrOperationInvalid) || errors.Is(err, hv.ErrNotActive) {
		return err
	}
	// libvirt has no distinct error for a running domain.
	dom, readErr := p.domains.Domain(ctx, id)
	if readErr == nil && dom.State == hv.StateRunning {
		return nil
	}
	return err
}

// PowerOn implements hv.Hypervisor. It may read the RAM of a managed save image, which it removes,
// and opens all disks, so its duration depends on the storage. It creates the NVRAM of a UEFI
// guest.
func (p *power) PowerOn(ctx context.Context, id string) error {
	err := p.calls.modifyByItself(ctx, longCallTimeout, id, keptSaves|keptNVRAM, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainCreate(dom)
	})
	if err == nil {
		return nil
	}
	// libvirt has no distinct error for an active domain.
	if said(err, golibvirt.ErrOperationInvalid) {
		if dom, readErr := p.domains.Domain(context.WithoutCancel(ctx), id); readErr == nil && dom.State.Active() {
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
func (p *power) PowerOff(ctx context.Context, id string) error {
	err := p.calls.modifyByItself(ctx, powerOffTimeout, id, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainDestroy(dom)
	})
	if err == nil {
		return nil
	}
	err = p.calls.changed(ctx, "power off", id, "", err)
	// libvirt has no distinct error for a domain that is off.
	if dom, readErr := p.domains.Domain(ctx, id); readErr == nil && dom.State == hv.StateStopped {
		return nil
	}
	return err
}

// Shutdown implements hv.Hypervisor. It selects the ACPI method: by default libvirt would wait for
// a guest agent that may hang.
func (p *power) Shutdown(ctx context.Context, id string) error {
	err := p.calls.change(ctx, "shut down", id, "", func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainShutdownFlags(dom, golibvirt.DomainShutdownAcpiPowerBtn)
	})
	if errors.Is(err, hv.ErrNotActive) {
		return nil
	}
	return err
}

// RebootGuest implements hv.Hypervisor. The guest shuts down as with Shutdown, and libvirt then
// resets the machine, in the same process.
func (p *power) RebootGuest(ctx context.Context, id string) error {
	return p.calls.change(ctx, "reboot", id, "", func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainReboot(dom, golibvirt.DomainRebootAcpiPowerBtn)
	})
}
