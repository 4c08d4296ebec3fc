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

// Allocating returns the directory's entry in Allocations. It fails in a read-only directory,
// because the daemon makes a file for this test.
func (i *Images) Allocating(dir string) (image.Allocating, error) {
	if i.ReadOnly != "" && dir == i.ReadOnly {
		return image.Allocating{}, &fs.PathError{Op: "open", Path: dir, Err: syscall.EROFS}
	}
	if how, known := i.Allocations[dir]; known {
		return how, nil
	}
	return image.Allocating{Sparse: true, Ahead: true}, nil
}

// Thick reports whether path is Full.
func (i *Images) Thick(path string, _ int64) (bool, error) {
	_, err := i.info(path)
	return path == i.Full, err
}

// Allocate records the allocation of an image's space.
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

// AttributesLost returns Unlike.
func (i *Images) AttributesLost(string, string, bool) ([]string, error) { return i.Unlike, nil }

// StoreLike returns Unlike.
func (i *Images) StoreLike(context.Context, string, string) ([]string, error) { return i.Unlike, nil }
