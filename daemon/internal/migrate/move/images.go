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

// Images has the operations on images at paths and addresses (image.Storage).
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
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent for a
	// missing image, and an *api.Error for an image that does not match the location or has other
	// base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// Blank reports whether an image has no data to lose. Of a raw file only the volume's bytes
	// count. A qcow2 image may be on a device.
	Blank(ctx context.Context, l api.Location) (bool, error)
	// Stamp returns a stamp that each write to the image changes, without reading the image, or
	// image.ErrAbsent.
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	// Fingerprint returns a text that distinguishes an image from a later one at its path, also
	// after a reboot, or image.ErrAbsent.
	Fingerprint(ctx context.Context, path string) (string, error)
	// RealPath returns the path of the image without links, or image.ErrAbsent. It refuses files
	// that are no image and places where images may not be.
	RealPath(path string) (string, error)
	// AllocatedBytes returns the disk space that a file uses.
	AllocatedBytes(path string) (int64, error)
	// Properties reads the properties of a qcow2 image that its guest does not see.
	Properties(path string) (image.Properties, error)
	// ClusterBytes returns the cluster size of a qcow2 image.
	ClusterBytes(path string) (int64, error)
}

// ImageUsers shows who uses an image, and whether its storage answers.
type ImageUsers interface {
	// InUse returns in words the users of the image that this host sees, or "": a mount, a
	// device-mapper or loop device, swap, or clients of an RBD image beyond those that ours (may
	// be nil) counts.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether a process of this host, or QEMU on another host, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Locks returns who has a file open, on any host, by QEMU's locks.
	Locks(ctx context.Context, path string) (image.Locks, error)
	// Answers returns an error if an NBD server answers neither a read nor a flush within a time
	// that suffices for any working server. It does not ask other storage.
	Answers(ctx context.Context, path string) error
	// Fence refuses an RBD image without an exclusive lock: a killed client's begun write could
	// still complete there.
	Fence(ctx context.Context, path string) error
	// Beside returns the files in the directory of path with the same name and another ending,
	// like the images of libvirt's snapshots.
	Beside(path string) ([]string, error)
}

// ImageMaker makes and removes images.
type ImageMaker interface {
	// Create makes a new image, or returns fs.ErrExist.
	Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error
	// FullBytes returns the size of a block device that holds a full qcow2 image of this size.
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	// CreateOnDevice makes an empty qcow2 image over the content of the block device with this
	// fingerprint, durably. It returns an *image.ReplacedError for another device at the path. It
	// may be repeated.
	CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error
	// RemoveMade removes an image that Create has made, including an RBD image once no client has
	// it open. fingerprint is empty if unknown.
	RemoveMade(ctx context.Context, path, fingerprint string) error
	// Remove unlinks a file, durably, if it exists. It never removes block devices and images at
	// addresses.
	Remove(ctx context.Context, path string) error
	// FillFirstBlock writes the first block of a raw file, durably, if it is a hole, without
	// changing the content. No program may write to the file meanwhile.
	FillFirstBlock(ctx context.Context, path string) error
	// Mark writes a text to the beginning of a raw image, durably; another host recognises the
	// image with Marked.
	Mark(ctx context.Context, path, text string) error
	Marked(ctx context.Context, path, text string) (bool, error)
}

// ImageRights has the rights, attributes and space of a file.
type ImageRights interface {
	// Rights returns the rights of the image at path while no guest has it, nil for a device.
	// GiveRights sets all of them on another image file, GiveBack those that libvirt changes. Both
	// return the refused rights in words.
	Rights(ctx context.Context, path string) (*image.Rights, error)
	GiveRights(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	GiveBack(ctx context.Context, path string, rights *image.Rights) (left []string, err error)
	// Allocating returns how the directory's filesystem allocates space for files. Thick reports
	// whether a file has as much space as its volume's bytes. Allocate allocates the first
	// sizeBytes of a file, durably; its error wraps errors.ErrUnsupported if the filesystem cannot
	// do that.
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	Allocate(ctx context.Context, path string, sizeBytes int64) error
	// AttributesLost returns in words the storage attributes of the file at path that a new file
	// in dir would lack; filled means that another program makes the new file. StoreLike gives the
	// attributes of the file like to a pool's new file at path, and returns the missing ones in
	// words.
	AttributesLost(path, dir string, filled bool) ([]string, error)
	StoreLike(ctx context.Context, path, like string) ([]string, error)
}

// Overlays are the images that a guest writes to while its volume moves.
type Overlays interface {
	// CreateOverlay makes an empty qcow2 overlay over backing, durably, with these rights unless
	// they are nil. An existing empty overlay over the same backing image is no error.
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	// CheckOverlay reports whether the overlay at path, over this backing image and of this size,
	// has no own data. It returns image.ErrAbsent for a missing file, and another error for a file
	// that is no such overlay.
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	// Fold merges the overlay into the top of a chain that equals the overlay's backing image,
	// durably. It keeps the overlay, so an interrupted fold can be repeated.
	Fold(ctx context.Context, overlay string, into []hv.Image) error
}

// Containers are LUKS containers.
type Containers interface {
	// CheckSecret returns an error if libvirt does not return the passphrase of a LUKS container.
	CheckSecret(ctx context.Context, img hv.Image) error
	// PayloadBytes returns the size of a LUKS container's payload.
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
}

// Snapshots works on the snapshots of RBD images.
type Snapshots interface {
	// Snapshot returns the state of an RBD image's snapshot, and with compare also whether the
	// image was written since. It returns image.ErrAbsent for a missing image, and image.ErrSilent
	// if the cluster does not answer.
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	// MakeSnapshot makes a snapshot of the RBD image with this fingerprint. RemoveSnapshot removes
	// the snapshot with this name and id, or does nothing if it is missing. Both return the errors
	// of Snapshot.
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
}

// ImageCache has data that is not yet on stable storage.
type ImageCache interface {
	// Connect drops this host's cache of the image: another host may have written to it.
	Connect(ctx context.Context, path string) error
	// Flush writes this host's cache of an image to stable storage. If it could not, it returns an
	// *image.NotStoredError, and only once.
	Flush(ctx context.Context, path string) error
}

// Directories checks where images are or will be made.
type Directories interface {
	// FreeBytes returns by how much a file in dir may grow.
	FreeBytes(dir string) (int64, error)
	// Quotas returns this user's limits on a file's size in dir, without the filesystem's size.
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	// Reach returns an *image.ReachError if a process of this user cannot reach the files in a
	// directory.
	Reach(user hv.ProcessUser, dir string) error
	// MayOpen returns an *image.OpenError if a process of this user cannot open an image for
	// reading and writing. No process may have the image open.
	MayOpen(user hv.ProcessUser, path string) error
	// TryDirectory makes and removes an image in a directory. It returns an *image.LimitError if
	// the filesystem lacks one of the needs, and an *image.OpenError if a process of this user
	// cannot open the image.
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	// MayWrite returns an error if this program cannot write in the path's directory.
	MayWrite(path string) error
	// DirectAlignBytes returns the alignment in dir of a raw file's size that QEMU needs for
	// O_DIRECT. hole: the file begins with a hole.
	DirectAlignBytes(dir string, hole bool) (int64, error)
}
