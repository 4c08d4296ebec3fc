// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/medium"
)

// SizeError reports that an image does not have the expected size.
type SizeError = qemuimg.SizeError

// Storage is the files and devices of this host. Its methods may be called from any goroutine.
type Storage struct {
	// Privileged makes the calls that need CAP_SYS_ADMIN.
	Privileged sandbox.Privileged
	// Access checks the access of QEMU's user.
	Access sandbox.Access
	// Network opens images at addresses.
	Network network.Access
	// Secret returns the value of a libvirt secret, by its UUID.
	Secret func(ctx context.Context, id string) ([]byte, error)
	// Files opens images that are files or devices.
	Files openfile.Files
}

// hostFiles opens images that are files or devices, and describes them to qemu-img.
type hostFiles struct{ openfile.Files }

func (s Storage) files() hostFiles { return hostFiles{s.Files} }

func (s hostFiles) qemuImage(img hv.Image) qemuimg.Image {
	return qemuimg.Image{Path: img.Path, Format: img.Format, SliceBytes: img.SliceBytes, LUKS: img.LUKSSecret != "", Files: s.Files}
}

// qcow2At returns the qcow2 image at path, without backing images.
func (s hostFiles) qcow2At(path string) qemuimg.Image {
	return s.qemuImage(hv.Image{Path: path, Format: string(api.FormatQcow2)})
}

// qemuChain converts a chain, top first, to an image with its backing images.
func (s hostFiles) qemuChain(chain []hv.Image) *qemuimg.Image {
	var img *qemuimg.Image
	for _, layer := range slices.Backward(chain) {
		top := s.qemuImage(layer)
		top.Backing = img
		img = &top
	}
	return img
}

// Inspect returns size and kind of the image at a location, or ErrAbsent. It refuses an image with
// other base images than its location's (chain_changed, or unsupported_disk if the location has
// none), and another device (CheckIdentity). The size is the whole image's, even if the volume is
// only its beginning (api.Location.VolumeBytes), including the header of a LUKS container.
func (s Storage) Inspect(ctx context.Context, l api.Location) (Info, error) {
	path, format := l.Path, l.Format
	if medium.IsNetwork(path) {
		info, err := inspectAddress(ctx, s.Network, path, format)
		if err == nil {
			err = CheckIdentity(l, info.Identity)
		}
		return info, err
	}
	found, err := s.files().find(path)
	if err != nil {
		return Info{}, err
	}
	defer found.Close()
	info := Info{Block: found.Block}
	if info.Identity, err = identityAt(l); err != nil {
		return info, err
	}
	l.ImageBytes, l.LUKSSecret = 0, ""
	info.SizeBytes, err = qemuimg.VirtualSize(ctx, *s.files().qemuChain(location.Chain(l, info.Block)))
	if err != nil {
		return info, badImage(path, format, err)
	}
	if !info.Block {
		info.AllocatedBytes, err = qemuimg.AllocatedBytes(path)
	}
	return info, err
}

// find finds the file or device at path. It refuses anything that is no image, or is where no image
// may be.
func (s hostFiles) find(path string) (*openfile.Image, error) {
	found, err := s.Files.Find(path, 0)
	if link, is := linkToNothing(path, err); is {
		return nil, api.Errorf(api.CodeInvalidArgument, "%s is a symbolic link to %s, where there is nothing; name the image itself", path, link)
	}
	if err != nil {
		return nil, noImage(err)
	}
	return found, nil
}

// RealPath returns the path of the image without links. It refuses anything that is no image, or
// is where no image may be, and returns ErrAbsent if there is nothing.
func (s Storage) RealPath(path string) (string, error) {
	if medium.IsNetwork(path) {
		return path, nil
	}
	found, err := s.files().find(path)
	if err != nil {
		return path, err
	}
	defer found.Close()
	return found.Real, nil
}

// ReadBacking returns the base images of the image at path, from its header and those below it, if
// its stated format is qcow2. It refuses (unsupported_disk) a header that does not state the
// format of the next image, and an image that is not a file or device of this host.
func (s Storage) ReadBacking(_ context.Context, path string, format api.Format) (api.Backing, error) {
	if medium.IsNetwork(path) {
		return "", nil // Inspect refuses all formats but raw
	}
	below, err := qemuimg.ReadChain(s.files().qemuImage(hv.Image{Path: path, Format: string(format)}))
	if err != nil {
		return "", badImage(path, format, err)
	}
	var images []api.BaseImage
	for ; below != nil; below = below.Backing {
		st, err := os.Stat(below.Path)
		if err != nil {
			return "", badImage(path, format, &qemuimg.BackingError{Backing: below.Path, Err: err})
		}
		images = append(images, api.BaseImage{Path: below.Path, Format: api.Format(below.Format), Block: st.Mode().Type() == os.ModeDevice})
	}
	return api.NewBacking(images), nil
}

func linkToNothing(path string, why error) (to string, is bool) {
	if !errors.Is(why, fs.ErrNotExist) {
		return "", false
	}
	to, err := os.Readlink(path)
	return to, err == nil
}

func badImage(path string, format api.Format, err error) error {
	var changed *qemuimg.ChainError
	if errors.As(err, &changed) {
		return api.Errorf(api.CodeChainChanged, "somebody has changed what a linked clone is over since it became a volume: %v; if that is right, forget it and adopt it again", changed)
	}
	if elsewhere := (*api.Error)(nil); errors.As(err, &elsewhere) || errors.Is(err, hv.ErrUnavailable) {
		return err
	}
	var bad *qemuimg.ImageError
	if errors.As(err, &bad) {
		return api.Errorf(api.CodeUnsupportedDisk, "%s cannot be used as a %s image: %s", path, format, bad.Reason)
	}
	if missing := (*qemuimg.BackingError)(nil); errors.As(err, &missing) {
		return api.Errorf(api.CodeUnsupportedDisk, "%s cannot be read: its base image %s cannot be opened: %v", path, missing.Backing, missing.Err)
	}
	if err := noImage(err); errors.Is(err, ErrAbsent) {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	return cannotOpen(path, err)
}

// cannotOpen returns the error for an existing image that cannot be opened: a device without a
// medium, a broken device, or a device that another program has opened exclusively.
func cannotOpen(path string, err error) *api.Error {
	return api.Errorf(api.CodeUnsupportedDisk, "%s cannot be opened: %v", path, err)
}

// RemoveMade is Remove for an image that Create has made, with its fingerprint if known. It also
// deletes an RBD image once no client has it open, but no other image at its address.
func (s Storage) RemoveMade(ctx context.Context, path, fingerprint string) error {
	if !medium.IsRBD(path) {
		return s.Remove(ctx, path)
	}
	if err := s.Network.Remove(ctx, path, fingerprint); err != nil {
		return cannotReach(path, err)
	}
	return nil
}

// Remove durably unlinks a file. It returns nil if there is none. It never removes a block device,
// a link to one (udev names devices by links), or an image at an address.
func (Storage) Remove(_ context.Context, path string) error {
	if medium.IsNetwork(path) {
		return nil
	}
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() == os.ModeSymlink {
		if behind, err := os.Stat(path); err == nil {
			st = behind
		}
	}
	if st.Mode().Type() == os.ModeDevice {
		return nil // a device is released, not removed
	}
	return atomicfile.Remove(path)
}

// Fingerprint identifies an image among later images at the same path. It returns ErrAbsent if
// there is nothing.
func (s Storage) Fingerprint(ctx context.Context, path string) (string, error) {
	if medium.IsNetwork(path) {
		text, err := s.Network.Fingerprint(ctx, path)
		if err != nil {
			err = cannotReach(path, err)
		}
		return text, err
	}
	text, err := location.Fingerprint(path)
	return text, noImage(err)
}

// Beside lists the other files in the directory of path that differ from it only in the extension.
func (Storage) Beside(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("look what is beside %s: %w", path, err)
	}
	var beside []string
	for _, e := range entries {
		other := filepath.Join(filepath.Dir(path), e.Name())
		if other != path && strings.TrimSuffix(other, filepath.Ext(other)) == strings.TrimSuffix(path, filepath.Ext(path)) {
			beside = append(beside, other)
		}
	}
	return beside, nil
}

// AllocatedBytes returns how much space a file takes.
func (Storage) AllocatedBytes(path string) (int64, error) { return qemuimg.AllocatedBytes(path) }

// Properties are the properties of a qcow2 image that a guest does not see.
type Properties = qemuimg.Properties

// Properties reads them from the header.
func (Storage) Properties(path string) (Properties, error) { return qemuimg.ReadProperties(path) }

// ClusterBytes returns the cluster size of a qcow2 image.
func (s Storage) ClusterBytes(path string) (int64, error) {
	return qemuimg.ClusterBytes(s.files().qcow2At(path))
}

// MayWrite refuses an image in a directory where this program cannot write.
func (Storage) MayWrite(path string) error { return location.CheckWritable(path) }

// FreeBytes returns how much a file in dir may still grow.
func (Storage) FreeBytes(dir string) (int64, error) { return location.DirFreeBytes(dir) }

// InMemory reports whether a reboot deletes the files in dir.
func (Storage) InMemory(dir string) (bool, error) { return location.InMemory(dir) }

// Answers returns an error if the server of an NBD export answers neither a read nor a flush
// within a time that suffices for any server.
func (s Storage) Answers(ctx context.Context, path string) error {
	if err := s.Network.Answers(ctx, path); err != nil {
		return cannotReach(path, err)
	}
	return nil
}

// Fence refuses an image if it is known that nothing stops a killed client's unfinished writes
// there.
func (s Storage) Fence(ctx context.Context, path string) error {
	if err := s.Network.Fence(ctx, path); err != nil {
		return cannotReach(path, err)
	}
	return nil
}

// InUse describes who holds the image: a mount, a device mapper or loop device, swap. It returns
// "" if nothing does as far as this host can see. A free block device can be opened exclusively; a
// file may be the content of a loop device. For an NBD export nothing can be seen. For an RBD
// image the result covers clients on all hosts, except as many as ours returns; ours may be nil.
func (s Storage) InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error) {
	if medium.IsNetwork(path) {
		who, err := s.Network.Holders(ctx, path, ours)
		if errors.Is(err, unix.ENOENT) {
			return "", nil
		}
		return who, err
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if st.Mode().Type() != os.ModeDevice {
		return loopDeviceOf(path)
	}
	f, err := s.Files.Open(path, os.O_RDONLY|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return "it is mounted, or part of another device", nil
	}
	if err != nil {
		return "", cannotOpen(path, err)
	}
	return "", f.Close()
}

func loopDeviceOf(path string) (string, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	place := location.PlaceOf(path)
	for _, f := range backing {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // detached since
		}
		same, err := place.Is(string(text[:max(0, len(text)-1)]))
		if err != nil {
			return "", fmt.Errorf("look at the file of %s: %w", loopDevice(f), err)
		}
		if same {
			return "it is the file of " + loopDevice(f), nil
		}
	}
	return "", nil
}

func loopDevice(backingFile string) string {
	return filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(backingFile))))
}

func noSpace(err error) error {
	if atomicfile.IsFull(err) {
		return api.Errorf(api.CodeNoSpace, "%v", err)
	}
	return err
}
