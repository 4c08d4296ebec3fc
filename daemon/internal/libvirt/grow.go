// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// GrowDisk makes the top image of the live disk larger, which only QEMU may do: it has the image
// open.
func (p *plug) GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error {
	// Without this flag the size is in KiB.
	const flags = golibvirt.DomainBlockResizeBytes
	dom, err := p.domains.Domain(ctx, id)
	if err != nil {
		return err
	}
	// Since libvirt 11, QEMU grows it all the same: the guest would see the bytes after the slice.
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
