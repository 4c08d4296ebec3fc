// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// CloneFrom shares the space of src (reflink) if both are regular files on one filesystem that
// supports it.
func (f *fileEnd) CloneFrom(src End) error {
	from, ok := src.(*fileEnd)
	if !ok || !f.regular || !from.regular {
		return errors.ErrUnsupported
	}
	err := unix.IoctlFileClone(int(f.buffered.Fd()), int(from.buffered.Fd()))
	switch {
	case err == nil:
		f.cached.Store(true)
		return nil
	case unsupported(err) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL):
		return fmt.Errorf("clone %s: %w (%w)", from.path, errors.ErrUnsupported, err)
	default:
		return &WriteError{f.path, 0, err}
	}
}

func (s *Spec) clone(src, dst End) (bool, error) {
	if s.Thick {
		return false, nil
	}
	return tryClone(src, dst)
}

func tryClone(src, dst End) (bool, error) {
	cloner, ok := dst.(Cloner)
	if !ok {
		return false, nil
	}
	err := cloner.CloneFrom(src)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}
