// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Chains changes the chain of a disk in a definition, and puts an overlay on a live chain.
type Chains interface {
	// SetConfigChain sets the disk's chain in the persistent definition, top first, written in
	// full and terminated. All other settings of the disk (address, serial, boot order, unknown
	// elements) and the live domain stay. It may be repeated. When it returns nil, it has read the
	// definition back with the change.
	SetConfigChain(ctx context.Context, id, target string, chain []Image) error
	// Snapshot atomically puts overlay on top of the live chain. overlay must be an empty qcow2
	// file backed by the disk's top image. When Snapshot returns nil, the previous top image gets
	// no more writes. After an error read the domain to learn the outcome.
	Snapshot(ctx context.Context, id, target string, overlay Image) error
	// CanSwitch returns nil if running domains of this host may be switched to these images, and
	// ErrUnsupported, with the reason, if the hypervisor would not resume a domain on one of them.
	CanSwitch(ctx context.Context, images ...string) error
	// StoredBitmaps lists the bitmaps that the process of an active domain stores in its open
	// images, including inconsistent ones. It queries QEMU: an added bitmap is in no image until
	// the process ends. It returns ErrNotActive if the domain is off.
	StoredBitmaps(ctx context.Context, id string) ([]StoredBitmap, error)
}
