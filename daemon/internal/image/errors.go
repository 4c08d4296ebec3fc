// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// ErrAbsent means that there is nothing at the path of an image.
var ErrAbsent = errors.New("no such image")

func noImage(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent
	}
	if bad := (*openfile.Error)(nil); errors.As(err, &bad) {
		return api.Errorf(api.CodeInvalidArgument, "%s cannot be an image: %s", bad.Path, bad.Reason)
	}
	return err
}

func badImage(path string, format api.Format, err error) error {
	var changed *qemuimg.ChainError
	if errors.As(err, &changed) {
		return api.Errorf(api.CodeChainChanged, "the base images of a linked clone were changed since it became a volume: %v; if that is right, forget it and adopt it again", changed)
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

func cannotOpen(path string, err error) *api.Error {
	return api.Errorf(api.CodeUnsupportedDisk, "%s cannot be opened: %v", path, err)
}

func noSpace(err error) error {
	if atomicfile.IsFull(err) {
		return api.Errorf(api.CodeNoSpace, "%v", err)
	}
	return err
}
