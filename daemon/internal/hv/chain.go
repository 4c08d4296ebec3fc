// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"context"
	"time"
)

// Chains changes the chain of a disk in a definition, and puts an overlay on a live chain.
type Chains interface {
	// SetConfigChain sets the disk's chain, top first, in the persistent definition. It writes
	// every image and an explicit end. All other settings of the disk (address, serial, boot
	// order, unknown elements) and the live domain stay. It may be repeated. When it returns nil,
	// it has found the change in the definition.
	SetConfigChain(ctx context.Context, id, target string, chain []Image) error
	// Snapshot atomically puts overlay on top of the live chain. overlay must be an empty qcow2
	// file backed by the disk's top image. When Snapshot returns nil, the previous top image gets
	// no more writes, and held is an upper bound of the time during which QEMU held back the
	// guest's writes. After an error read the domain to learn the outcome.
	Snapshot(ctx context.Context, id, target string, overlay Image) (held time.Duration, err error)
	// CanSwitch returns nil if disks of this host's running domains may be switched to these
	// images, and ErrUnsupported, with the reason, if the hypervisor would not resume a domain on
	// one of them.
	CanSwitch(ctx context.Context, images ...string) error
	// StoredBitmaps lists the bitmaps that the process of an active domain stores in its open
	// images, including inconsistent ones. It queries QEMU, because QEMU writes a new bitmap into
	// its image only when the process ends. It returns ErrNotActive if the domain is off.
	StoredBitmaps(ctx context.Context, id string) ([]StoredBitmap, error)
}
