// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Inspect returns size and kind of the image at a location, or ErrAbsent. It refuses an image with
// other base images than its location's (chain_changed, or unsupported_disk if the location has
// none), and another device (CheckIdentity). The size is the whole image's, even if the volume is
// only its beginning (api.Location.VolumeBytes), including the header of a LUKS container.
func (s Storage) Inspect(ctx context.Context, l api.Location) (Info, error) {
	return s.at(l.Path).inspect(ctx, l)
}

// RealPath returns the path of the image without links. It refuses anything that is no image, or
// is where no image may be, and returns ErrAbsent if there is nothing.
func (s Storage) RealPath(path string) (string, error) { return s.at(path).realPath(path) }

// ReadBacking returns the base images of the image at path, from its header and those below it, if
// its stated format is qcow2. It refuses (unsupported_disk) a header that does not state the
// format of the next image, and an image that is not a file or device of this host.
func (s Storage) ReadBacking(_ context.Context, path string, format api.Format) (api.Backing, error) {
	return s.at(path).readBacking(path, format)
}

// Fingerprint identifies an image among later images at the same path. It returns ErrAbsent if
// there is nothing.
func (s Storage) Fingerprint(ctx context.Context, path string) (string, error) {
	return s.at(path).fingerprint(ctx, path)
}

// Stamp reads the stamp of the image at path. For an image at an address the stamp has only the
// size. It returns ErrAbsent if there is nothing.
func (s Storage) Stamp(ctx context.Context, path string) (Stamp, error) {
	return s.at(path).stamp(ctx, path)
}

// Rights reads the rights that the image at path has without a guest: for a guest libvirt makes
// QEMU's user the owner of the file, and remembers the previous owner. They are nil for a block
// device, because udev sets its rights.
//
// If libvirt remembers nothing (remember_owner = 0, a filesystem without trusted attributes, a
// shareable disk) they are the present rights.
func (s Storage) Rights(ctx context.Context, path string) (*Rights, error) {
	return s.at(path).rights(ctx, path)
}

// InUse describes who holds the image: a mount, a device mapper or loop device, or swap. It
// returns "" if this host can see no holder. It tests a block device by an exclusive open, and a
// file by looking for a loop device over it. For an NBD export it returns "". For an RBD image it
// counts the clients on all hosts, and returns "" if their number is in the range that ours
// returns; ours may be nil for none.
func (s Storage) InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error) {
	return s.at(path).inUse(ctx, path, ours)
}

// Locks reads the locks of a file, and takes none. It reports no locks on a filesystem without
// locks, and for a device: QEMU's locks of a device belong to its node, and each guest has its own
// nodes.
func (s Storage) Locks(_ context.Context, path string) (Locks, error) { return s.at(path).locks(path) }

// Written reports whether a process of this host has a file open for writing: the kernel grants no
// read lease on such a file. On NFS, where the kernel's leases depend on the server's delegations,
// it reports by QEMU's locks whether a QEMU of any host has. For devices and exports, and on a
// filesystem without leases, this is unknown: false. An error means that the kernel should know
// and did not answer.
func (s Storage) Written(_ context.Context, path string) (bool, error) {
	return s.at(path).written(path)
}

// MayOpen returns nil if a process of this user can open the image at path for reading and
// writing, once libvirt has given the image to the user as far as it does, and an *OpenError if
// not. It tries to open the image: only the kernel, and the server of a mount, know. The image may
// belong to the user for a moment, so no program may have it open.
func (s Storage) MayOpen(who hv.ProcessUser, path string) error {
	if who.UID == 0 {
		return nil
	}
	return s.at(path).mayOpen(s.user(who), path)
}

// Create makes a new image. It returns fs.ErrExist if there is anything at its path. An RBD image
// needs about.Temporary and about.Whole, and has no rights.
func (s Storage) Create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error {
	return s.at(img.Path).create(ctx, img, sizeBytes, about)
}

// Fold merges the overlay into the top of a chain that equals its backing image, and returns when
// that is on stable storage. It reads the images below the top. It does not change the overlay, so
// an interrupted fold can be repeated.
func (s Storage) Fold(ctx context.Context, overlay string, into []hv.Image) error {
	passphrase, err := s.passphrase(ctx, into[0])
	if err != nil {
		return err
	}
	return s.at(into[0].Path).fold(ctx, overlay, into, passphrase)
}

// RemoveMade is Remove for an image that Create has made, with its fingerprint if known. It also
// deletes an RBD image once no client has it open, but no other image at its address.
func (s Storage) RemoveMade(ctx context.Context, path, fingerprint string) error {
	return s.at(path).removeMade(ctx, path, fingerprint)
}

// Remove durably unlinks a file. It returns nil if there is none. It never removes a block device,
// a link to one (udev names devices by links), or an image at an address.
func (s Storage) Remove(_ context.Context, path string) error { return s.at(path).remove(path) }

// Connect prepares the image at path for a guest of this host. It drops the host's cached pages of
// a block device, because another host may have written to it since. A file is its filesystem's
// task, an export its server's.
func (s Storage) Connect(ctx context.Context, path string) error {
	return s.at(path).connect(ctx, path)
}

// Disconnect is called when the last guest of this host has released the image. When it returns
// nil, the host's cached data of the image is on stable storage and no longer in memory, or there
// is no image. It returns a *NotStoredError as Flush does.
func (s Storage) Disconnect(ctx context.Context, path string) error {
	return s.at(path).disconnect(ctx, path)
}

// Flush puts the cached data of an image on stable storage, in this host or in the server of an
// NBD export. A *NotStoredError means that this failed; any other error, that it was not tried.
func (s Storage) Flush(ctx context.Context, path string) error { return s.at(path).flush(ctx, path) }

// Answers returns an error if the server of an NBD export answers neither a read nor a flush
// within a time that suffices for any server.
func (s Storage) Answers(ctx context.Context, path string) error {
	return s.at(path).answers(ctx, path)
}

// Fence refuses an image if it is known that nothing stops a killed client's unfinished writes
// there.
func (s Storage) Fence(ctx context.Context, path string) error { return s.at(path).fence(ctx, path) }

// StoreLike gives the raw file at path the attributes of the file like, as far as possible, and
// describes the missing ones. The file is new, and no program has it open.
func (s Storage) StoreLike(_ context.Context, path, like string) (left []string, err error) {
	has := s.at(like).attributes(like)
	if has == (attributes{}) {
		return nil, nil
	}
	return s.at(path).storeLike(path, has)
}
