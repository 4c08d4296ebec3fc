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

// Allocating says how the filesystem of a directory gives its files room.
type Allocating struct {
	// Sparse: what was never written to of a file takes no room, and the filesystem says how much
	// the rest takes.
	Sparse bool
	// Ahead: a file can be given room before it is written to.
	Ahead bool
}

// Allocating tries a directory with a file that is removed.
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

// Thick reports whether a file takes as much room as its volume has bytes. It says no where nobody
// can tell: on a filesystem that says of every file that it takes all of its size.
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

// Allocate gives a file room for its first sizeBytes, whatever it has there and however large it
// is, durably. The error wraps errors.ErrUnsupported where the filesystem cannot.
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

// allocate has no effect on what the file reads as, nor on its size.
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
