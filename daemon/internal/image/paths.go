// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Inspect returns size and kind of the image at a location, or ErrAbsent. It refuses an image with
// other base images than the location's (chain_changed, or unsupported_disk if the location has
// none), and another device (CheckIdentity). The size is the whole image's, with a LUKS header,
// even if the volume is only its beginning (api.Location.VolumeBytes).
func (s Storage) Inspect(ctx context.Context, l api.Location) (Info, error) {
	return s.at(l.Path).inspect(ctx, l)
}

// RealPath returns the path of the image without links. It refuses anything that is no image, and
// a path that is forbidden for images. It returns ErrAbsent if there is nothing.
func (s Storage) RealPath(path string) (string, error) { return s.at(path).realPath(path) }

// ReadBacking returns the base images of the image at path, if its stated format is qcow2, from
// its header and the headers of the base images. It refuses (unsupported_disk) a header that does
// not state the format of the next image, and an image at an address.
func (s Storage) ReadBacking(_ context.Context, path string, format api.Format) (api.Backing, error) {
	return s.at(path).readBacking(path, format)
}

// Fingerprint returns a text that distinguishes the image from later images at the same path. It
// returns ErrAbsent if there is nothing.
func (s Storage) Fingerprint(ctx context.Context, path string) (string, error) {
	return s.at(path).fingerprint(ctx, path)
}

// Stamp reads the stamp of the image at path. For an image at an address the stamp has only the
// size. It returns ErrAbsent if there is nothing.
func (s Storage) Stamp(ctx context.Context, path string) (Stamp, error) {
	return s.at(path).stamp(ctx, path)
}

// Rights reads the rights that the image at path has when no guest uses it: for a guest libvirt
// makes QEMU's user the owner of the file, and remembers the previous owner. They are nil for a
// block device, because udev sets its rights.
//
// If libvirt remembers no owner (remember_owner = 0, a filesystem without trusted attributes, a
// shareable disk), Rights returns the present rights.
func (s Storage) Rights(ctx context.Context, path string) (*Rights, error) {
	return s.at(path).rights(ctx, path)
}

// InUse describes who holds the image: a mount, a device mapper or loop device, or swap, "" if
// this host can see no holder. It tests a block device by an exclusive open, and a file by looking
// for a loop device over it. For an NBD export it returns "". For an RBD image it counts the
// clients on all hosts, and returns "" if only Volferry's own are connected: ours returns their
// minimum and maximum number; nil means none.
func (s Storage) InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error) {
	return s.at(path).inUse(ctx, path, ours)
}

// Locks reads the locks of a file, and takes none. It reports none on a filesystem without locks,
// and none for a device: QEMU locks the device's node in /dev, and each guest has its own nodes.
func (s Storage) Locks(_ context.Context, path string) (Locks, error) { return s.at(path).locks(path) }

// Written reports whether a process of this host has a file open for writing: the kernel grants no
// read lease on such a file. On NFS, where leases depend on the server, it reports whether a QEMU
// of any host may write, by QEMU's locks. For devices, exports and a filesystem without leases it
// returns false. Any other failure to get a lease is an error.
func (s Storage) Written(_ context.Context, path string) (bool, error) {
	return s.at(path).written(path)
}

// MayOpen returns nil if a process of this user can open the image at path for reading and writing
// after libvirt has given the image to the user, and an *OpenError if not. It tries to open the
// image, because only the kernel or a server can decide, and may make the user the image's owner
// for a moment: no program may have the image open.
func (s Storage) MayOpen(who hv.ProcessUser, path string) error {
	if who.UID == 0 {
		return nil
	}
	return s.at(path).mayOpen(s.user(who), path)
}

// Create makes a new image. It returns fs.ErrExist if there is anything at its path. An RBD image
// needs about.Temporary and about.Whole, and gets no rights.
func (s Storage) Create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error {
	return s.at(img.Path).create(ctx, img, sizeBytes, about)
}

// Fold merges the overlay into the top image of chain. That image must have the content of the
// overlay's backing image; the images below it are only read. Fold returns when the result is on
// stable storage. It does not change the overlay, so an interrupted fold can be repeated.
func (s Storage) Fold(ctx context.Context, overlay string, chain []hv.Image) error {
	passphrase, err := s.passphrase(ctx, chain[0])
	if err != nil {
		return err
	}
	return s.at(chain[0].Path).fold(ctx, overlay, chain, passphrase)
}

// RemoveMade removes an image that Create has made, as Remove does. It also deletes an RBD image,
// with this fingerprint unless that is empty, once no client has the image open.
func (s Storage) RemoveMade(ctx context.Context, path, fingerprint string) error {
	return s.at(path).removeMade(ctx, path, fingerprint)
}

// Remove durably unlinks a file. It returns nil if there is none. It never removes a block device,
// a link to one (udev names devices by links), or an image at an address.
func (s Storage) Remove(_ context.Context, path string) error { return s.at(path).remove(path) }

// Connect prepares the image at path for a guest of this host. It drops the host's cached pages of
// a block device, because another host may have written to the device. For a file the filesystem
// does that, for an export the server.
func (s Storage) Connect(ctx context.Context, path string) error {
	return s.at(path).connect(ctx, path)
}

// Disconnect writes the host's cached data of the image to stable storage, and drops it. Call it
// when the last guest of this host has released the image. It returns nil if there is no image,
// and a *NotStoredError as Flush does.
func (s Storage) Disconnect(ctx context.Context, path string) error {
	return s.at(path).disconnect(ctx, path)
}

// Flush writes the cached data of an image, in this host or in the server of an NBD export, to
// stable storage. A *NotStoredError means that this failed. Any other error means that it was not
// tried.
func (s Storage) Flush(ctx context.Context, path string) error { return s.at(path).flush(ctx, path) }

// Answers returns an error if the server of an NBD export does not answer a read and a flush
// within ample time.
func (s Storage) Answers(ctx context.Context, path string) error {
	return s.at(path).answers(ctx, path)
}

// Fence returns an error if it is known that unfinished writes of a killed client may still reach
// the image later.
func (s Storage) Fence(ctx context.Context, path string) error { return s.at(path).fence(ctx, path) }

// StoreLike gives the raw file at path the attributes of the file at like, as far as possible, and
// describes the missing ones. The file at path is new, and no program has it open.
func (s Storage) StoreLike(_ context.Context, path, like string) (left []string, err error) {
	has := s.at(like).attributes(like)
	if has == (attributes{}) {
		return nil, nil
	}
	return s.at(path).storeLike(path, has)
}
