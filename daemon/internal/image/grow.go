// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// Sync flushes an image that another program has changed. It returns the errors of Flush.
func (s Storage) Sync(ctx context.Context, path string) error { return s.Flush(ctx, path) }

// Grow makes an image file sizeBytes large; the added bytes read as zeros. The caller makes the
// change durable (Sync). If the file has this size, Grow does nothing. It returns size_mismatch if
// the file is larger, hv.ErrInUse if a running guest has it open, and ErrAbsent if there is none.
func (s Storage) Grow(ctx context.Context, img hv.Image, sizeBytes int64) error {
	err := qemuimg.Grow(ctx, s.host().qemuImage(img), sizeBytes)
	var larger *SizeError
	var bad *qemuimg.ImageError
	var ran *qemuimg.CommandError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &larger):
		return api.Errorf(api.CodeSizeMismatch, "%s has %d bytes, which is more than %d; nothing was changed", larger.Path, larger.Bytes, sizeBytes).
			With("size_bytes", sizeBytes).With("found_bytes", larger.Bytes)
	case errors.As(err, &ran) && strings.Contains(ran.Stderr, "Is another process using the image"):
		return errors.Join(hv.ErrInUse, err)
	case errors.As(err, &bad):
		return badImage(img.Path, api.Format(img.Format), err)
	}
	return noSpace(noImage(err))
}
