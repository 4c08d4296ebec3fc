// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"os"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// CreateOverlay makes an empty qcow2 overlay over backing and returns when file
// and directory are on stable storage. An empty overlay of the same backing
// image that exists already is no error. It gets these rights as far as its filesystem has
// them, unless they are nil.
func (Storage) CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *Rights) error {
	about := qemuimg.NewFile{Filled: func(f *os.File) error { return asOf(f, rights, nil) }}
	return noSpace(qemuimg.CreateOverlay(ctx, path, qemuImage(backing), sizeBytes, about))
}

// CheckOverlay says whether path is an overlay over backing of this size, and
// whether it holds no data of its own: ErrAbsent if there is no file, another
// error if it is something else.
func (Storage) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	empty, err := qemuimg.CheckOverlay(path, qemuImage(backing), sizeBytes)
	return empty, noImage(err)
}

// Fold merges the overlay into the top of a chain that equals its backing image, and
// returns when that is on stable storage. What is below the top is read. The overlay is left as
// it is, so that a fold that was cut off can be made again.
func (Storage) Fold(ctx context.Context, overlay string, into []hv.Image) error {
	return noSpace(qemuimg.CommitOffline(ctx, overlay, *qemuChain(into), qemuimg.CommitOptions{}))
}
