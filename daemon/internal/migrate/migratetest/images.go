// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// FakeImages are the world's images as Images.
type FakeImages struct {
	fake   *hvtest.Fake
	Closed string // a directory that QEMU does not Pass
	Shut   string // a directory in which QEMU opens nothing
	// OnCreate is told how far a new image is, if it is set, and temporary is the name of
	// the newest before it was whole.
	OnCreate  func(moment string)
	Temporary string
	// Resized is the size of every overlay that somebody has resized, 0 if nobody has.
	Resized atomic.Int64
	// Free is how much every directory has free, 0 for plenty.
	Free atomic.Int64

	Mu sync.Mutex
	// Durable are the flushes and removals of images, and what was given back, in order.
	Durable []string
	// Given are those that images were given.
	Given map[string]*image.Rights
}

func (i *FakeImages) note(what, path string) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	i.Durable = append(i.Durable, what+" "+path)
}

// Flush implements steps.Images.
func (i *FakeImages) Flush(_ context.Context, path string) error {
	i.note("flush", path)
	return nil
}

// CreateOverlay implements steps.Images.
func (i *FakeImages) CreateOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error {
	if empty, err := i.CheckOverlay(context.Background(), path, backing, sizeBytes); err == nil && empty {
		return nil
	}
	i.give(path, rights)
	return i.fake.CreateOverlay(path, backing, sizeBytes)
}

// Rights are the same for every image.
func (i *FakeImages) Rights(context.Context, string) (*image.Rights, error) {
	return &image.Rights{UID: 1000, GID: 1000, Mode: 0o640}, nil
}

// GiveRights implements steps.Images.
func (i *FakeImages) GiveRights(_ context.Context, path string, rights *image.Rights) ([]string, error) {
	if _, err := i.fake.Info(path); err != nil {
		return nil, err
	}
	i.give(path, rights)
	return nil, nil
}

// GiveBack implements steps.Images.
func (i *FakeImages) GiveBack(_ context.Context, path string, rights *image.Rights) ([]string, error) {
	if _, err := i.fake.Info(path); err != nil {
		return nil, err
	}
	i.note("give back", path)
	return nil, nil
}

func (i *FakeImages) give(path string, rights *image.Rights) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.Given == nil {
		i.Given = map[string]*image.Rights{}
	}
	i.Given[path] = rights
}

// CheckOverlay implements steps.Images.
func (i *FakeImages) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, image.ErrAbsent
	}
	if is := i.Resized.Load(); is != 0 && err == nil {
		return false, &image.SizeError{Path: path, Bytes: is, WantBytes: sizeBytes}
	}
	if err == nil && (info.Backing != backing || info.SizeBytes != sizeBytes) {
		err = fmt.Errorf("%s is no overlay over %v of %d bytes", path, backing, sizeBytes)
	}
	return info.Allocated == 0, err
}

// Fold implements steps.Images.
func (i *FakeImages) Fold(_ context.Context, overlay string, into hv.Image) error {
	return i.fake.CommitOffline(overlay, into.Path)
}

// Create makes the image under its temporary name first, as on a filesystem that has no
// files without a name.
func (i *FakeImages) Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error {
	temporary := filepath.Join(filepath.Dir(img.Path), about.Temporary)
	i.Temporary = temporary
	if err := i.fake.CreateImage(temporary, img.Format, sizeBytes); err != nil {
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
		err = i.fake.Link(temporary, img.Path)
		i.moment("linked")
	}
	return errors.Join(err, i.fake.Remove(temporary))
}

func (i *FakeImages) moment(name string) {
	if i.OnCreate != nil {
		i.OnCreate(name)
	}
}

// Inspect implements steps.Images.
func (i *FakeImages) Inspect(_ context.Context, path string, _ api.Format) (image.Info, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return image.Info{}, image.ErrAbsent
	}
	return image.Info{
		SizeBytes: info.SizeBytes, AllocatedBytes: int64(info.Allocated) * hvtest.BlockSize,
		Block: strings.HasPrefix(path, "/dev/"),
	}, err
}

// Stamp implements steps.Images.
func (i *FakeImages) Stamp(_ context.Context, path string) (image.Stamp, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = image.ErrAbsent
	}
	return image.Stamp{SizeBytes: info.SizeBytes, ModifiedNS: info.Written, Boot: i.fake.BootID()}, err
}

// Fingerprint implements steps.Images.
func (i *FakeImages) Fingerprint(_ context.Context, path string) (string, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", image.ErrAbsent
	}
	return fmt.Sprintf("born %d", info.Born), err
}

// InUse implements steps.Images.
func (i *FakeImages) InUse(context.Context, string) (string, error) { return "", nil }

// Remove implements steps.Images.
func (i *FakeImages) Remove(_ context.Context, path string) error {
	i.note("remove", path)
	if err := i.fake.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// AllocatedBytes implements steps.Images.
func (i *FakeImages) AllocatedBytes(path string) (int64, error) {
	info, err := i.fake.Info(path)
	return int64(info.Allocated) * hvtest.BlockSize, err
}

// FreeBytes implements steps.Images.
func (i *FakeImages) FreeBytes(string) (int64, error) {
	if free := i.Free.Load(); free != 0 {
		return free, nil
	}
	return 1 << 40, nil
}

// Reach implements steps.Images.
func (i *FakeImages) Reach(user hv.ProcessUser, dir string) error {
	if dir == i.Closed {
		return &image.ReachError{User: user, Dir: dir, Mode: 0o700}
	}
	return nil
}

// MayOpen implements steps.Images.
func (i *FakeImages) MayOpen(user hv.ProcessUser, path string) error {
	if _, err := i.fake.Info(path); err != nil {
		return err
	}
	if i.Shut != "" && filepath.Dir(path) == i.Shut {
		return &image.OpenError{User: user, Path: path}
	}
	return nil
}

// GaveRights says whether an image was given the rights of src, whatever its path.
func (i *FakeImages) GaveRights(path string) bool {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	r := i.Given[path]
	return r != nil && r.UID == 1000 && r.Mode == 0o640
}

// Connect implements steps.Images.
func (i *FakeImages) Connect(context.Context, string) error { return nil }
