// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// Images are the fake hypervisor's images, and behave like image.Storage. Paths below /dev are
// block devices.
type Images struct {
	Fake *hvtest.Fake
	// Closed is a directory that QEMU cannot traverse. Shut is an image that QEMU cannot open, or
	// a directory of such images.
	Closed, Shut string
	// AlignBytes is the alignment that QEMU needs of a raw file's size if the file begins with
	// data; 0 stands for 512. Filled are the files with a filled first block.
	AlignBytes int64
	Filled     []string
	Unreadable string
	// Private is the id of a libvirt secret without a readable value.
	Private string
	// Limits has the filesystems' limits by directory.
	Limits map[string]image.Needs
	// Allocations has, by directory, how filesystems allocate space; the default is Sparse and
	// Ahead. Full is a fully allocated image. Unlike are the attributes that copies lose.
	Allocations map[string]image.Allocating
	Full        string
	Unlike      []string
	ReadOnly    string
	// OnCreate is called at each stage of a new image. Temporary is the newest image's temporary
	// name.
	OnCreate  func(moment string)
	Temporary string
	// Writing are the images that a process has open for writing. Devices are block devices
	// outside /dev.
	Writing, Devices map[string]bool
	Locked           map[string]image.Locks
	// Places, if not nil, decides whether a real path of this machine may be opened as an image.
	Places openfile.Places
	// Stuck is the error that every removal returns.
	Stuck error
	// NoSnapshots is the error that every new snapshot returns.
	NoSnapshots error
	// BeforeGrow is called once, before the next growth. OnDisconnect is called at each
	// disconnect.
	BeforeGrow, OnDisconnect func()
	// Resized is the size that another program has given to every overlay, or 0.
	Resized atomic.Int64
	// SmallClusterBytes is the cluster size of moved images; 0 stands for the usual size.
	SmallClusterBytes int64
	// Layout has the unusual features of every qcow2 image.
	Layout []string
	// Free is the free space of every directory; 0 stands for plenty.
	Free  atomic.Int64
	Quota atomic.Pointer[quota.Limit]
	// Memory is true if every directory is in the host's memory.
	Memory atomic.Bool

	Mu sync.Mutex
	// Users has, by image, a description of a user other than domains.
	Users map[string]string
	Marks map[string]string
	// FlushFails returns the error of an image's next flush. The flush after that succeeds,
	// because Linux reports a lost write once, and drops its pages. Lost counts the lost blocks.
	FlushFails func(path string) error
	Lost       int
	// Slow returns how long an image's flush takes, which nothing interrupts.
	Slow  func(path string) time.Duration
	Print func(path string) string
	// Durable has the flushes and removals of images, and the restored rights, in order.
	Durable []string
	Given   map[string]*image.Rights
	// Disconnects counts disconnects. Early is true if an image was disconnected while a domain
	// had it.
	Disconnects int
	Early       bool
}

func (i *Images) note(what, path string) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	i.Durable = append(i.Durable, what+" "+path)
}

func (i *Images) info(path string) (hvtest.ImageInfo, error) {
	if i.Places != nil && medium.Of(path).Path {
		img, err := openfile.Files{Places: i.Places}.Find(path, 0)
		switch {
		case err == nil:
			img.Close()
		case !errors.Is(err, fs.ErrNotExist):
			return hvtest.ImageInfo{}, err
		}
	}
	info, err := i.Fake.Info(path)
	return info, absent(err)
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return image.ErrAbsent
	}
	return err
}

// CreateOverlay makes an empty overlay unless it exists.
func (i *Images) CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error {
	if empty, err := i.CheckOverlay(ctx, path, backing, sizeBytes); err == nil && empty {
		return nil
	}
	if err := i.CheckSecret(ctx, backing); err != nil {
		return err
	}
	i.give(path, rights)
	return i.Fake.CreateOverlay(path, backing, sizeBytes)
}

// CheckOverlay reports whether an overlay is empty.
func (i *Images) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	info, err := i.info(path)
	if is := i.Resized.Load(); is != 0 && err == nil {
		return false, &image.SizeError{Path: path, Bytes: is, WantBytes: sizeBytes}
	}
	if err == nil && (info.Backing != backing || info.SizeBytes != sizeBytes) {
		err = fmt.Errorf("%s is no overlay over %v of %d bytes", path, backing, sizeBytes)
	}
	return info.Allocated == 0, err
}

// CheckSecret refuses the secret Private.
func (i *Images) CheckSecret(_ context.Context, img hv.Image) error {
	if i.Private != "" && img.LUKSSecret == i.Private {
		return api.Errorf(api.CodeStateForbidden, "the secret is private")
	}
	return nil
}

// PayloadBytes returns the size that a guest sees of a container.
func (i *Images) PayloadBytes(_ context.Context, img hv.Image) (int64, error) {
	info, err := i.info(img.Path)
	if err == nil && img.LUKSSecret != "" {
		info.SizeBytes -= hvtest.HeaderBytes
	}
	return info.SizeBytes, err
}

// Fold merges an overlay into the top of a chain.
func (i *Images) Fold(ctx context.Context, overlay string, into []hv.Image) error {
	if err := i.CheckSecret(ctx, into[0]); err != nil {
		return err
	}
	i.note("fold into", into[0].Path)
	return i.Fake.CommitOffline(overlay, into[0])
}

// Create makes an image, first under its temporary name, as on a filesystem without nameless
// files.
func (i *Images) Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error {
	temporary := image.TemporaryPath(img.Path, about.Temporary)
	i.Temporary = temporary
	err := i.Fake.CreateImage(temporary, img.Format, sizeBytes)
	if len(about.Backing) > 0 {
		err = i.Fake.CreateOverlay(temporary, about.Backing[0], sizeBytes)
	}
	if err != nil {
		return err
	}
	fingerprint, err := i.Fingerprint(ctx, temporary)
	if err == nil {
		i.moment("whole")
		i.give(img.Path, about.Rights)
		err = about.Whole(fingerprint)
	}
	if err == nil {
		i.moment("noted")
		err = i.Fake.Link(temporary, img.Path)
		i.moment("linked")
	}
	return errors.Join(err, i.Fake.Remove(temporary))
}

func (i *Images) moment(name string) {
	if i.OnCreate != nil {
		i.OnCreate(name)
	}
}

// Grow makes an image larger, unless a domain has it open.
func (i *Images) Grow(_ context.Context, img hv.Image, sizeBytes int64) error {
	if before := i.BeforeGrow; before != nil {
		i.BeforeGrow = nil
		before()
	}
	info, err := i.info(img.Path)
	if err != nil || info.SizeBytes > sizeBytes || i.isDevice(img.Path) {
		return fmt.Errorf("%s cannot be made %d bytes large: %+v, %w", img.Path, sizeBytes, info, err)
	}
	if err = i.Fake.GrowImage(img.Path, sizeBytes); errors.Is(err, hvtest.ErrLocked) {
		return hv.ErrInUse
	}
	return err
}

// RealPath returns the path.
func (i *Images) RealPath(path string) (string, error) { return path, nil }

// Remove unlinks an image, but no device or image at an address.
func (i *Images) Remove(ctx context.Context, path string) error {
	if !medium.Of(path).Deletable {
		return i.Stuck
	}
	return i.RemoveMade(ctx, path, "")
}

// RemoveMade removes an image, also at an address, unless its fingerprint differs.
func (i *Images) RemoveMade(ctx context.Context, path, fingerprint string) error {
	i.note("remove", path)
	if i.Stuck != nil || i.isDevice(path) {
		return i.Stuck
	}
	if now, err := i.Fingerprint(ctx, path); err == nil && fingerprint != "" && now != fingerprint && !medium.Of(path).Path {
		return fmt.Errorf("%s is another image by now: %s, and was %s", path, now, fingerprint)
	}
	if err := i.Fake.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (i *Images) isDevice(path string) bool {
	return strings.HasPrefix(path, "/dev/") || i.Devices[path]
}

// Rights returns the same rights for every image except exports.
func (i *Images) Rights(_ context.Context, path string) (*image.Rights, error) {
	if !medium.Of(path).Path {
		return nil, nil
	}
	return &image.Rights{UID: 1000, GID: 1000, Mode: 0o640}, nil
}

// GiveRights records an image's rights.
func (i *Images) GiveRights(_ context.Context, path string, rights *image.Rights) ([]string, error) {
	_, err := i.Fake.Info(path)
	if err == nil {
		i.give(path, rights)
	}
	return nil, err
}

// GiveBack records that an image has its previous rights.
func (i *Images) GiveBack(_ context.Context, path string, _ *image.Rights) ([]string, error) {
	_, err := i.Fake.Info(path)
	if err == nil {
		i.note("give back", path)
	}
	return nil, err
}

func (i *Images) give(path string, rights *image.Rights) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.Given == nil {
		i.Given = map[string]*image.Rights{}
	}
	i.Given[path] = rights
}

// GaveRights reports whether the image was given src's rights.
func (i *Images) GaveRights(path string) bool {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	r := i.Given[path]
	return r != nil && r.UID == 1000 && r.Mode == 0o640
}

// Inspect returns the size and kind of an image that matches the location.
func (i *Images) Inspect(ctx context.Context, l api.Location) (image.Info, error) {
	path := l.Path
	info, err := i.info(path)
	if err != nil {
		return image.Info{}, err
	}
	if l.Format == api.FormatQcow2 && info.Format != string(l.Format) {
		err = api.Errorf(api.CodeUnsupportedDisk, "%s cannot be used as a qcow2 image", path)
	}
	if err == nil {
		err = i.checkBacking(ctx, l)
	}
	if err != nil {
		return image.Info{Block: i.isDevice(path)}, err
	}
	fingerprint, err := i.Fingerprint(ctx, path)
	if err != nil {
		return image.Info{}, err
	}
	identity := image.IdentityIn(fingerprint)
	if err := image.CheckIdentity(l, identity); err != nil {
		return image.Info{Block: i.isDevice(path)}, err
	}
	if l.Format == api.FormatRaw && info.DeviceBytes != 0 {
		return image.Info{SizeBytes: info.DeviceBytes, Block: true, Identity: identity}, nil
	}
	return image.Info{SizeBytes: info.SizeBytes, AllocatedBytes: int64(info.Allocated) * hvtest.BlockSize, Block: i.isDevice(path), Identity: identity}, nil
}

func (i *Images) checkBacking(ctx context.Context, l api.Location) error {
	is, err := i.ReadBacking(ctx, l.Path, l.Format)
	if err != nil || is == l.Backing {
		return err
	}
	return api.Errorf(api.CodeChainChanged, "%s is over %s, and %s was stored", l.Path, is, l.Backing)
}

// ReadBacking returns an image's base images, from its headers.
func (i *Images) ReadBacking(_ context.Context, path string, format api.Format) (api.Backing, error) {
	var images []api.BaseImage
	for format == api.FormatQcow2 {
		info, err := i.info(path)
		if err != nil {
			return "", err
		}
		if info.Backing.Path == "" {
			break
		}
		path, format = info.Backing.Path, api.Format(info.Backing.Format)
		images = append(images, api.BaseImage{Path: path, Format: format, Block: i.isDevice(path)})
	}
	return api.NewBacking(images), nil
}

// Stamp returns a stamp of an image. Each write changes the stamp.
func (i *Images) Stamp(_ context.Context, path string) (image.Stamp, error) {
	if path == i.Unreadable && path != "" {
		return image.Stamp{}, fs.ErrPermission
	}
	info, err := i.info(path)
	if !medium.Of(path).Witnessed {
		return image.Stamp{SizeBytes: info.SizeBytes}, err
	}
	stamp := image.Stamp{Boot: i.Fake.BootID(), BootedNS: timeOf(info.Before)}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.isDevice(path) {
		stamp.Device, stamp.Sectors = true, max(0, info.Written-info.Before)
	} else {
		stamp.SizeBytes, stamp.ModifiedNS = info.SizeBytes, timeOf(info.Written)
	}
	return stamp, err
}

// timeOf returns a time for a number of a write: the fake counts writes. The times are early in a
// bubble's time.
func timeOf(write int64) int64 {
	return time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(write) * time.Microsecond).UnixNano()
}

// Fingerprint returns a text that differs for a later image at the same path.
func (i *Images) Fingerprint(_ context.Context, path string) (string, error) {
	if medium.Of(path).Protocol == medium.ProtocolNBD {
		return "export " + path, nil
	}
	info, err := i.info(path)
	if err != nil {
		return "", err
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.Print != nil {
		return i.Print(path), nil
	}
	if i.isDevice(path) {
		return fmt.Sprintf("device born-%d", info.Born), nil
	}
	return fmt.Sprintf("born %d", info.Born), nil
}

// Written reports whether a process has the image open for writing.
func (i *Images) Written(_ context.Context, path string) (bool, error) { return i.Writing[path], nil }

// Locks returns QEMU's locks of an image.
func (i *Images) Locks(_ context.Context, path string) (image.Locks, error) {
	return i.Locked[path], nil
}

// Answers returns an error if the server of an export does not answer. It checks no other storage.
func (i *Images) Answers(_ context.Context, path string) error {
	if medium.Of(path).Severable && i.Fake.Silent(path) {
		return errors.New("the server does not answer")
	}
	return nil
}

// Fence refuses no image.
func (*Images) Fence(context.Context, string) error { return nil }

// Beside returns the files with the name of path and another extension.
func (i *Images) Beside(path string) ([]string, error) { return i.Fake.Beside(path) }

// AllocatedBytes returns the allocated size of an image.
func (i *Images) AllocatedBytes(path string) (int64, error) {
	if !medium.Of(path).Filesystem {
		return 0, fs.ErrNotExist
	}
	info, err := i.Fake.Info(path)
	return int64(info.Allocated) * hvtest.BlockSize, err
}

// Properties returns an image's bitmaps and layout.
func (i *Images) Properties(path string) (image.Properties, error) {
	names, err := i.Fake.Bitmaps(path)
	return image.Properties{Bitmaps: names, Layout: i.Layout}, err
}

// ClusterBytes returns the cluster size of a qcow2 image.
func (i *Images) ClusterBytes(string) (int64, error) {
	return cmp.Or(i.SmallClusterBytes, image.ClusterBytes), nil
}

// Blank reports whether a volume's part of an image is unwritten.
func (i *Images) Blank(_ context.Context, l api.Location) (bool, error) {
	blocks, err := i.Fake.ReadImage(l.Path)
	for b := range blocks {
		if b*hvtest.BlockSize < l.SizeBytes {
			return false, err
		}
	}
	return true, err
}

// DirectAlignBytes returns AlignBytes. For a file that begins with a hole it returns the maximum.
func (i *Images) DirectAlignBytes(_ string, hole bool) (int64, error) {
	if hole {
		return image.MaxAlignBytes, nil
	}
	return cmp.Or(i.AlignBytes, 512), nil
}

// Mark records the text.
func (i *Images) Mark(_ context.Context, path, text string) error {
	if _, err := i.info(path); err != nil {
		return err
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.Marks == nil {
		i.Marks = map[string]string{}
	}
	i.Marks[path] = text
	return nil
}

// Marked reports whether an image has this mark.
func (i *Images) Marked(_ context.Context, path, text string) (bool, error) {
	if _, err := i.info(path); err != nil {
		return false, err
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	return i.Marks[path] == text, nil
}

// FillFirstBlock records the file in Filled.
func (i *Images) FillFirstBlock(_ context.Context, path string) error {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	i.Filled = append(i.Filled, path)
	return nil
}
