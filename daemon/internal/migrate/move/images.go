// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

// Images has the operations on images at paths and network addresses. The methods without a
// comment here are described at image.Storage.
type Images interface {
	ImageDescriber
	ImageUsers
	ImageMaker
	ImageRights
	Overlays
	Containers
	Snapshots
	ImageCache
	Directories
}

// ImageDescriber describes an image.
type ImageDescriber interface {
	// Inspect returns size and kind of the image at a location. It returns image.ErrAbsent for a
	// missing image, and an *api.Error for an image that does not match the location or has other
	// base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Blank reports whether an image has no data to lose. Of a raw file only the volume's bytes
	// count. A qcow2 image may be on a device.
	Blank(ctx context.Context, l api.Location) (bool, error)
	// Stamp returns a stamp that each write to the image changes, without reading the image, or
	// image.ErrAbsent.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint returns a text that distinguishes an image from a later image at its path, also
	// after a reboot, or image.ErrAbsent.
	Fingerprint(ctx context.Context, path string) (string, error)
	// RealPath returns the path of the image without links, or image.ErrAbsent. It refuses files
	// that are no image and places where images may not be.
	RealPath(path string) (string, error)
	AllocatedBytes(path string) (int64, error)
	// Properties returns the properties of a qcow2 image that its guest does not see.
	Properties(path string) (image.Properties, error)
	ClusterBytes(path string) (int64, error)
}

// ImageUsers shows who uses an image, and whether its storage answers.
type ImageUsers interface {
	// InUse describes the users of the image that this host sees, or returns "". Users are a
	// mount, a device-mapper or loop device, swap, and clients of an RBD image, except as many as
	// ours (may be nil) returns.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether a process of this host, or QEMU on another host, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Locks returns who has a file open, on any host, by QEMU's locks.
	Locks(ctx context.Context, path string) (image.Locks, error)
	Answers(ctx context.Context, path string) error
	// Fence refuses an RBD image without an exclusive lock: a write that a killed client has begun
	// could still complete there.
	Fence(ctx context.Context, path string) error
	// Beside returns the files in the directory of path with the same name and another ending,
	// like the images of libvirt's snapshots.
	Beside(path string) ([]string, error)
}

// ImageMaker makes and removes images.
type ImageMaker interface {
	// Create makes a new image, or returns fs.ErrExist.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// FullBytes returns the size that a block device needs for a full qcow2 image of this size.
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	// CreateOnDevice makes an empty qcow2 image on the block device with this fingerprint, over
	// its content, durably. It returns an *image.ReplacedError if the path has another device. It
	// may be repeated.
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	// RemoveMade removes an image that Create has made, including an RBD image once no client has
	// it open. fingerprint is empty if unknown.
	RemoveMade(ctx context.Context, path, fingerprint string) error
	// Remove unlinks a file, durably, if it exists. It never removes block devices and images at
	// addresses.
	Remove(ctx context.Context, path string) error
	FillFirstBlock(ctx context.Context, path string) error
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
}

// ImageRights reads and sets the rights, attributes and space of files.
type ImageRights interface {
	// Rights are nil for a device. GiveRights and GiveBack describe the refused rights.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	Allocate(ctx context.Context, path string, sizeBytes int64) error
	AttributesLost(path, dir string, filled bool) ([]string, error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
}

// Overlays makes, checks and folds the images that guests write to while their volumes move.
type Overlays interface {
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// Fold merges the overlay into the top image of chain, which has the content of the overlay's
	// backing image, durably. It keeps the overlay, so an interrupted fold can be repeated.
	Fold(ctx context.Context, overlay string, chain []hv.Image) error
}

// Containers describes LUKS containers.
type Containers interface {
	// CheckSecret returns an error if libvirt does not provide the passphrase of a LUKS container.
	CheckSecret(ctx context.Context, img hv.Image) error
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
}

// Snapshots works on the snapshots of RBD images.
type Snapshots interface {
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
}

// ImageCache handles data of images in this host's cache.
type ImageCache interface {
	// Connect drops this host's cache of the image: another host may have written to it.
	Connect(ctx context.Context, path string) error
	// Flush writes this host's cache of an image to stable storage. If a write was lost it returns
	// an *image.NotStoredError, but only once.
	Flush(ctx context.Context, path string) error
}

// Directories checks where images are or will be made.
type Directories interface {
	FreeBytes(dir string) (int64, error)
	// Quotas returns this user's limits on a file in dir. It ignores the filesystem's size.
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	// Reach returns an *image.ReachError if a process of this user cannot reach the files in a
	// directory.
	Reach(user hv.ProcessUser, dir string) error
	MayOpen(user hv.ProcessUser, path string) error
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	// MayWrite returns an error if this program cannot write in the path's directory.
	MayWrite(path string) error
	DirectAlignBytes(dir string, hole bool) (int64, error)
}
