// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"io/fs"
)

// ErrAbsent says that there is nothing at the path of an image.
var ErrAbsent = errors.New("no such image")

func noImage(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent
	}
	return err
}
