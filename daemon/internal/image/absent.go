// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"io/fs"

	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
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
