// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Plug adds, removes and grows the disks of a domain.
type Plug interface {
	// GrowDisk makes the top image of the live disk sizeBytes large, a multiple of 512, and
	// notifies the guest, running or paused. The added bytes read as zeros. It returns nil if the
	// disk has this size, and would shrink a larger one: compare CapacityBytes before. A block
	// device must have the size already; GrowDisk only makes the process see it. It returns
	// ErrBusy while a block job runs on the disk, and ErrUnsupported if the top image is the
	// beginning of a larger one.
	GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error
	// AttachDisk adds a disk to the live domain or to the persistent definition. It returns
	// ErrExists if its target, or the address in its Definition or Slot, is taken there; ErrInUse
	// (Live) if the image is open elsewhere, and one of the two users writes while the other does
	// not share; ErrNotActive for Live on a domain that is off; ErrUnsupported if its bus takes no
	// disk now, its boot order is taken, or the domain has no such description. When it returns
	// nil, the guest may not have noticed a live disk yet.
	//
	// The two descriptions choose addresses independently. To keep a disk's address at the next
	// boot, attach it to one description, and to the other with the DiskDefinition of the first.
	// Begin with the definition, because a disk can be removed from it without the guest.
	AttachDisk(ctx context.Context, id string, where Where, disk DiskSpec) error
	// DetachDisk removes a disk from the persistent definition, or requests the running guest to
	// release it. The guest has released the disk only when Domain does not show it any more;
	// EventDeviceRemoved hints at that. A guest may refuse or never answer; the request may be
	// repeated. A paused guest answers when it runs; a machine reset is an answer too. Disks on a
	// SCSI or USB bus are removed without the guest. It returns nil if the disk is absent (an
	// inactive domain has no live disk), and ErrBusy while a block job runs on the live disk.
	// Start no job until the guest has answered: the job would stay in the process, out of reach,
	// with its images open. When the disk is gone, the process writes no more, and soon closes its
	// images.
	DetachDisk(ctx context.Context, id string, where Where, target string) error
	// DiskDefinition returns the disk in the hypervisor's format, for DiskSpec.Definition. It
	// returns ErrNotFound if there is no such disk, and ErrNotActive for Live on a domain that is
	// off.
	DiskDefinition(ctx context.Context, id string, where Where, target string) (string, error)
}

// Where selects one of the two descriptions of a domain.
type Where string

// Live is the live domain, Config the persistent definition.
const (
	Live   Where = "live"
	Config Where = "config"
)
