// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// DirtyTracker tracks the writes of a domain's process to a live disk, in bitmaps with one bit per
// unit. The bitmaps end with the process. QEMU sets the bits of a guest's write when the data
// reaches the image, or later, but before it acknowledges the write. Every method returns
// ErrNotActive for a domain that is off, and ErrNotFound for an absent disk.
type DirtyTracker interface {
	// CanTrack returns nil if bitmaps of the disk can be created and read, and otherwise the
	// reason. It returns ErrBusy while the process serves its images to another program.
	CanTrack(ctx context.Context, id, target string) error
	// StartTracking creates an empty bitmap that records from now on. unitBytes, the size of a
	// unit, is a power of two. It returns ErrExists if the disk has a bitmap of this name.
	StartTracking(ctx context.Context, id, target, name string, unitBytes int64) error
	// SwapTracking creates an empty, recording bitmap newName, and then stops the recording of
	// oldName: a write between the two steps is in both. It makes both changes or none. It returns
	// ErrExists if newName exists, and ErrNotFound if oldName does not.
	SwapTracking(ctx context.Context, id, target, oldName, newName string, unitBytes int64) error
	// Tracking lists the bitmaps of the disk, including other programs' bitmaps.
	Tracking(ctx context.Context, id, target string) ([]DirtyBitmap, error)
	// DirtyUnits reads a bitmap that no longer records. It returns the written ranges in order,
	// each as long as possible. It returns ErrNotFound if the bitmap does not exist, and ErrBusy
	// while the process serves its images to another program.
	DirtyUnits(ctx context.Context, id, target, name string) ([]DirtyRange, error)
	// StopTracking removes all bitmaps of the disk with this name prefix, and the leftovers of
	// interrupted reads of such bitmaps. It returns nil if there are none.
	StopTracking(ctx context.Context, id, target, prefix string) error
}

// DirtyBitmap is one bitmap of a disk.
type DirtyBitmap struct {
	Name      string
	Recording bool
	// UnitBytes is the size of a unit, one bit. DirtyBytes is the number of set bits times
	// UnitBytes.
	UnitBytes  int64
	DirtyBytes int64
}

// StoredBitmap is a dirty bitmap that QEMU stores in its image, for an incremental backup.
type StoredBitmap struct {
	Name string
	// Node is the image's node in QEMU's block graph. Path is the image's path, empty if QEMU
	// gives none.
	Node string
	Path string
	// Idle: the bitmap is disabled or inconsistent. A copy job does not copy such a bitmap.
	Idle bool
}

// DirtyRange is a written range of a disk: whole units, except at the end of the disk.
type DirtyRange struct {
	Offset int64
	Bytes  int64
}
