// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/image"
)

// What files take of their filesystems.

// Allocating is what Allocations says of the directory. It tries that with a file, as the daemon
// does.
func (i *Images) Allocating(dir string) (image.Allocating, error) {
	if i.ReadOnly != "" && dir == i.ReadOnly {
		return image.Allocating{}, &fs.PathError{Op: "open", Path: dir, Err: syscall.EROFS}
	}
	if how, known := i.Allocations[dir]; known {
		return how, nil
	}
	return image.Allocating{Sparse: true, Ahead: true}, nil
}

// Thick says so of Full.
func (i *Images) Thick(path string, _ int64) (bool, error) {
	_, err := i.info(path)
	return path == i.Full, err
}

// Allocate notes that an image was given room.
func (i *Images) Allocate(_ context.Context, path string, sizeBytes int64) error {
	if how, err := i.Allocating(filepath.Dir(path)); err != nil || !how.Ahead {
		return errors.Join(err, errors.ErrUnsupported)
	}
	_, err := i.info(path)
	if err == nil {
		i.note(fmt.Sprintf("allocate %d of", sizeBytes), path)
	}
	return err
}

// AttributesLost is Unlike.
func (i *Images) AttributesLost(string, string, bool) ([]string, error) { return i.Unlike, nil }

// StoreLike is Unlike.
func (i *Images) StoreLike(context.Context, string, string) ([]string, error) { return i.Unlike, nil }
