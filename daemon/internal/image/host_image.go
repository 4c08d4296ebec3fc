// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

func (h host) inspect(ctx context.Context, l api.Location) (Info, error) {
	path, format := l.Path, l.Format
	found, err := h.find(path)
	if err != nil {
		return Info{}, err
	}
	defer found.Close()
	info := Info{Block: found.Block}
	if info.Identity, err = identityAt(l); err != nil {
		return info, err
	}
	l.ImageBytes, l.LUKSSecret = 0, ""
	info.SizeBytes, err = qemuimg.VirtualSize(ctx, *h.qemuChain(location.Chain(l, info.Block)))
	if err != nil {
		return info, badImage(path, format, err)
	}
	if !info.Block {
		info.AllocatedBytes, err = qemuimg.AllocatedBytes(path)
	}
	return info, err
}

// find finds the file or device at path. It refuses anything that is no image, and a path that is
// forbidden for images.
func (h host) find(path string) (*openfile.Image, error) {
	found, err := h.Find(path, 0)
	if link, is := linkToNothing(path, err); is {
		return nil, api.Errorf(api.CodeInvalidArgument, "%s is a symbolic link to %s, where there is nothing; name the image itself", path, link)
	}
	if err != nil {
		return nil, noImage(err)
	}
	return found, nil
}

func (h host) realPath(path string) (string, error) {
	found, err := h.find(path)
	if err != nil {
		return path, err
	}
	defer found.Close()
	return found.Real, nil
}

func (h host) readBacking(path string, format api.Format) (api.Backing, error) {
	below, err := qemuimg.ReadChain(h.qemuImage(hv.Image{Path: path, Format: string(format)}))
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

func (h host) removeMade(_ context.Context, path, _ string) error { return h.remove(path) }

func (host) remove(path string) error {
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
		return nil // a device is released by its pool, not removed here
	}
	return atomicfile.Remove(path)
}

func (host) fingerprint(_ context.Context, path string) (string, error) {
	text, err := location.Fingerprint(path)
	return text, noImage(err)
}

// answers returns nil: for a file or device the kernel waits for the storage.
func (host) answers(context.Context, string) error { return nil }

// fence returns nil, because no unfinished write reaches a file or device after its process, or
// the kernel, has ended.
func (host) fence(context.Context, string) error { return nil }
