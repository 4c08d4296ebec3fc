// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// alreadyAsked is a part of QEMU's error for a device with an unanswered unplug request.
const alreadyAsked = "in the process of unplug"

func (p *plug) AttachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error {
	if err := p.attachDisk(ctx, id, where, disk); err != nil {
		return fmt.Errorf("attach %s %s: %w", where, nameOf(id, disk.Target), err)
	}
	return nil
}

func (p *plug) attachDisk(ctx context.Context, id string, where hv.Where, disk hv.DiskSpec) error {
	flag, err := modifyFlag(where)
	if err != nil {
		return err
	}
	doc, err := domainxml.DiskXML(disk, p.clusters)
	if err == nil && len(disk.Reserved) > 0 {
		doc, err = p.addressBesideReserved(ctx, id, where, doc, disk.Reserved)
	}
	if err == nil && where == hv.Config {
		err = p.checkLivePort(ctx, id, doc)
	}
	if err != nil {
		return err
	}
	attach := func() error {
		return p.calls.modify(ctx, id, keptBy(where), func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainAttachDeviceFlags(dom, doc, uint32(flag))
		})
	}
	if where == hv.Live {
		err = p.leases.leavingNoLease(ctx, id, disk.Target, true, attach)
	} else {
		err = attach()
	}
	if where == hv.Config && isBootClash(err) {
		err = p.defineWithDisk(context.WithoutCancel(ctx), id, doc)
	}
	return p.explainAttach(context.WithoutCancel(ctx), id, where, disk.Target, err)
}

// checkLivePort refuses a disk that the running guest has no port for: libvirt would add a port to
// the definition, and leave it there without the disk.
func (p *plug) checkLivePort(ctx context.Context, id, disk string) error {
	live, err := p.domains.describedXML(ctx, id, hv.Live)
	if errors.Is(err, hv.ErrNotActive) {
		return nil
	}
	if err != nil {
		return err
	}
	return domainxml.CheckPort(live, disk)
}

func keptBy(where hv.Where) kept {
	if where == hv.Config {
		return keptDefinitions
	}
	return keptNothing
}

// explainAttach finds the reason of a refusal: libvirt uses one code for several reasons, and
// different codes for process and definition.
func (p *plug) explainAttach(ctx context.Context, id string, where hv.Where, target string, err error) error {
	if err == nil || errors.Is(err, hv.ErrUnavailable) || errors.Is(err, hv.ErrNotFound) {
		return err
	}
	dom, readErr := p.domains.Domain(ctx, id)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w; and then: %w", err, readErr)
	case where == hv.Live && !dom.State.Active():
		return fmt.Errorf("%w: %w", hv.ErrNotActive, err)
	case where == hv.Config && !dom.Persistent:
		return fmt.Errorf("%w: the domain is transient: %w", hv.ErrUnsupported, err)
	case diskIn(dom, where, target) != nil:
		return fmt.Errorf("%w: %w", hv.ErrExists, err)
	}
	return err
}

func diskIn(dom *hv.Domain, where hv.Where, target string) *hv.Disk {
	if where == hv.Live {
		return dom.LiveDisk(target)
	}
	return dom.ConfigDisk(target)
}

func (p *plug) DetachDisk(ctx context.Context, id string, where hv.Where, target string) error {
	err := p.detachDisk(ctx, id, where, target)
	p.library.note(keptBy(where), nil) // also if another program has removed the disk
	if err == nil {
		return nil
	}
	if !errors.Is(err, hv.ErrUnavailable) {
		// The disk may have disappeared between the read and the call.
		dom, readErr := p.domains.Domain(context.WithoutCancel(ctx), id)
		if readErr == nil && diskIn(dom, where, target) == nil {
			return nil
		}
	}
	return fmt.Errorf("detach %s %s: %w", where, nameOf(id, target), err)
}

func (p *plug) detachDisk(ctx context.Context, id string, where hv.Where, target string) error {
	disk, err := p.domains.diskElement(ctx, id, where, target)
	if err != nil {
		return err
	}
	if where == hv.Config {
		doc, err := domainxml.TextOf(disk)
		if err != nil {
			return err
		}
		return p.calls.modify(ctx, id, keptDefinitions, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			return lv.DomainDetachDeviceFlags(dom, doc, uint32(golibvirt.DomainDeviceModifyConfig))
		})
	}
	alias := ""
	if el := disk.SelectElement("alias"); el != nil {
		alias = el.SelectAttrValue("name", "")
	}
	// By alias: this call returns when the guest has got the request. The other call waits for the
	// guest's answer and blocks all other calls on the domain for seconds.
	err = p.calls.modify(ctx, id, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainDetachDeviceAlias(dom, alias, uint32(golibvirt.DomainDeviceModifyLive))
	})
	if saidText(err, alreadyAsked) {
		return nil
	}
	return err
}

func (p *plug) DiskDefinition(ctx context.Context, id string, where hv.Where, target string) (string, error) {
	disk, err := p.domains.diskElement(ctx, id, where, target)
	doc := ""
	if err == nil {
		doc, err = domainxml.TextOf(disk)
	}
	if err != nil {
		return "", fmt.Errorf("read %s %s: %w", where, nameOf(id, target), err)
	}
	return doc, nil
}

func (p *plug) addressBesideReserved(ctx context.Context, id string, where hv.Where, disk string, reserved []string) (string, error) {
	domain, err := p.domains.describedXML(ctx, id, where)
	if err != nil {
		return "", err
	}
	return domainxml.AllocAddress(domain, disk, reserved, where == hv.Config)
}

// GrowDisk makes the top image of the live disk larger. Only QEMU may do that, since it has the
// image open.
func (p *plug) GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error {
	// Without this flag the size is in KiB.
	const flags = golibvirt.DomainBlockResizeBytes
	dom, err := p.domains.Domain(ctx, id)
	if err != nil {
		return err
	}
	// Since libvirt 11, QEMU would grow such an image: the guest would see the bytes after the
	// slice.
	if disk := dom.LiveDisk(target); disk != nil && disk.Top().SliceBytes != 0 {
		return fmt.Errorf("grow %s: %w: the disk is the beginning of a larger image", nameOf(id, target), hv.ErrUnsupported)
	}
	// The call waits for requests in flight, and so for storage.
	err = p.calls.modifyByItself(ctx, longCallTimeout, id, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return lv.DomainBlockResize(dom, target, uint64(sizeBytes), flags)
	})
	err = p.calls.changed(ctx, "grow", id, target, err)
	// QEMU's text for a disk with a block job; libvirt reports only a failure.
	if saidText(err, "'block_resize'") && (saidText(err, "' is in use") || saidText(err, "' is busy")) {
		return fmt.Errorf("%w: %w", hv.ErrBusy, err)
	}
	return err
}

// isBootClash reports whether a disk with a boot order was refused because the definition has
// <boot dev> elements. libvirt adds such an element when the last device with a boot order is
// removed; a detached root disk could then not be attached again.
func isBootClash(err error) bool {
	return saidText(err, "per-device boot elements cannot be used together with os/boot elements")
}

// defineWithDisk adds a disk with a boot order to a definition if only libvirt's own <boot
// dev='hd'/> prevents that. libvirt has no call for it: the whole definition is read and written,
// and a concurrent edit may be lost.
func (p *plug) defineWithDisk(ctx context.Context, id, disk string) error {
	s, err := p.connection.changes()
	if err != nil {
		return err
	}
	dom, err := lookup(ctx, s, id)
	if err != nil {
		return err
	}
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		// Without SECURE the secrets would be lost.
		return lv.DomainGetXMLDesc(dom, golibvirt.DomainXMLInactive|golibvirt.DomainXMLSecure)
	})
	if err != nil {
		return err
	}
	edited, err := domainxml.WithBootDisk(doc, disk)
	if err != nil {
		return err
	}
	return p.calls.modify(ctx, id, keptDefinitions, func(lv *golibvirt.Libvirt, _ golibvirt.Domain) error {
		_, err := lv.DomainDefineXMLFlags(edited, 0)
		return err
	})
}
