// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// snapshotFlags: disks only, prepared files, all or nothing, and no snapshot object left in
// libvirt.
const snapshotFlags = golibvirt.DomainSnapshotCreateDiskOnly | golibvirt.DomainSnapshotCreateReuseExt |
	golibvirt.DomainSnapshotCreateAtomic | golibvirt.DomainSnapshotCreateNoMetadata

// Snapshot puts overlay on top of the live chain. QEMU drains and flushes the previous top image
// and reopens it read-only before it answers.
func (ch *chains) Snapshot(ctx context.Context, id, target string, overlay hv.Image) error {
	dom, err := ch.domains.Domain(ctx, id)
	if err != nil {
		return fmt.Errorf("snapshot disk %s: %w", target, err)
	}
	// On a domain that is off libvirt would edit the definition instead.
	if !dom.State.Active() {
		return fmt.Errorf("snapshot disk %s of domain %s: %w", target, id, hv.ErrNotActive)
	}
	if dom.LiveDisk(target) == nil {
		return fmt.Errorf("snapshot disk %s of domain %s: %w: no such disk", target, id, hv.ErrNotFound)
	}
	doc, err := domainxml.SnapshotXML(dom.Live, target, overlay)
	if err != nil {
		return fmt.Errorf("snapshot disk %s of domain %s: %w", target, id, err)
	}
	// QEMU flushes the previous top image, which waits for storage. A definition that named that
	// image names the overlay afterwards.
	err = ch.leases.takingImage(ctx, id, overlay, func() error {
		return ch.calls.modifyByItself(ctx, longCallTimeout, id, keptDefinitions, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
			_, err := lv.DomainSnapshotCreateXML(dom, doc, uint32(snapshotFlags))
			return err
		})
	})
	return ch.calls.changed(ctx, "snapshot", id, target, err)
}
