// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// Allocating describes how the filesystem of a directory allocates files.
type Allocating struct {
	// Sparse is true if unwritten parts of a file take no space, and the filesystem reports the
	// space of the other parts.
	Sparse bool
	// Ahead is true if space can be allocated before a file is written.
	Ahead bool
}

// Allocating tests, with a temporary file, how a directory's filesystem allocates files.
func (Storage) Allocating(dir string) (how Allocating, err error) {
	answered := answered("files get room in "+dir, func() (err error) {
		how, err = allocating(dir)
		return err
	})
	if answered != nil {
		return Allocating{}, answered
	}
	return how, nil
}

func allocating(dir string) (how Allocating, err error) {
	f, _, remove, err := trialFile(dir)
	if err != nil {
		return how, err
	}
	defer remove()
	if how.Sparse, err = hasHoles(f); err != nil {
		return how, err
	}
	err = allocate(f, MaxAlignBytes)
	how.Ahead = err == nil
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return how, noSpace(err)
}

// Thick reports whether a file takes as much space as its volume has bytes. It returns false on a
// filesystem that reports the full size for every file.
func (s Storage) Thick(path string, sizeBytes int64) (bool, error) {
	allocated, err := qemuimg.AllocatedBytes(path)
	if err != nil || allocated < sizeBytes {
		return false, err
	}
	real, err := s.RealPath(path)
	if err != nil {
		return false, err
	}
	how, err := s.Allocating(filepath.Dir(real))
	return err == nil && how.Sparse, nil //nolint:nilerr // in a directory where no file can be made nobody can tell
}

// Allocate durably allocates space for the first sizeBytes of a file, and does not change its
// content or size. The error wraps errors.ErrUnsupported if the filesystem cannot do that.
func (s Storage) Allocate(_ context.Context, path string, sizeBytes int64) error {
	f, err := s.Files.Open(path, os.O_RDWR)
	if err != nil {
		return noImage(err)
	}
	err = allocate(f, sizeBytes)
	if err == nil {
		err = f.Sync()
	}
	return noSpace(errors.Join(err, f.Close()))
}

func allocate(f *os.File, sizeBytes int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, sizeBytes)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("allocate %s: %w", f.Name(), err)
		}
		return nil
	}
}
