// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// DirtyTracker follows what the process of a domain writes to one of its live disks, in
// bitmaps of units. A bitmap has the writes of this process alone, and ends with it. A write
// of the guest is in every bitmap that recorded when its data got to the image, or later,
// before the guest was told that it is done. Every method returns ErrNotActive for a domain
// that is off, and ErrNotFound for a disk that is not there.
type DirtyTracker interface {
	// CanTrack returns nil if bitmaps of the disk can be made and read, and says why not
	// otherwise. It leaves the disk as it is. ErrBusy while the process serves its images to
	// somebody else.
	CanTrack(ctx context.Context, id, target string) error
	// StartTracking makes an empty bitmap that records from now on. UnitBytes is a power of
	// two. ErrExists if the disk has a bitmap of this name.
	StartTracking(ctx context.Context, id, target, name string, unitBytes int64) error
	// SwapTracking makes an empty bitmap newName that records, and then has oldName record no
	// more: a write between the two is in both. It does both or nothing. ErrExists and
	// ErrNotFound are about the bitmaps.
	SwapTracking(ctx context.Context, id, target, oldName, newName string, unitBytes int64) error
	// Tracking lists the bitmaps of the disk, also those of others.
	Tracking(ctx context.Context, id, target string) ([]DirtyBitmap, error)
	// DirtyUnits reads a bitmap that records no more: what was written, in order, each range
	// as long as can be. ErrNotFound if there is no such bitmap, ErrBusy while the process
	// serves its images to somebody else.
	DirtyUnits(ctx context.Context, id, target, name string) ([]DirtyRange, error)
	// StopTracking removes all bitmaps of the disk whose names begin with prefix, and what
	// was left behind by a read of theirs that was cut off. None is no error.
	StopTracking(ctx context.Context, id, target, prefix string) error
}

// DirtyBitmap is one bitmap of a disk.
type DirtyBitmap struct {
	Name string
	// Recording says that writes are still noted.
	Recording bool
	// UnitBytes is what a bit stands for, DirtyBytes how many bits are set, times UnitBytes.
	UnitBytes  int64
	DirtyBytes int64
}

// StoredBitmap is a dirty bitmap that QEMU stores in its image: a backup that begins later takes
// what it has noted for all that was written.
type StoredBitmap struct {
	Name string
	// Node is the node of QEMU's block graph that has it. Path is the image, empty if QEMU does not
	// say it as a path.
	Node string
	Path string
	// Idle says that it notes no writes, because it is disabled or inconsistent. A copy of the disk
	// does not have it.
	Idle bool
}

// DirtyRange is a range of a disk that was written: whole units, but at the end of the disk.
type DirtyRange struct {
	Offset int64
	Bytes  int64
}
