// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/rbd"
)

// ErrSilent means that the storage of an image at an address does not answer, perhaps temporarily.
var ErrSilent = errors.New("the storage does not answer")

// Snapshot describes a snapshot of an RBD image, and with compare whether the image was written
// since. It returns ErrAbsent if there is no image, and ErrSilent if the cluster does not answer,
// as MakeSnapshot and RemoveSnapshot do.
func (s Storage) Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error) {
	snapshot, err := s.Network.Snapshot(ctx, path, name, compare)
	return snapshot, snapshotError(path, err)
}

// MakeSnapshot makes a snapshot of the RBD image at path with this fingerprint.
func (s Storage) MakeSnapshot(ctx context.Context, path, fingerprint, name string) error {
	return snapshotError(path, s.Network.MakeSnapshot(ctx, path, fingerprint, name))
}

// RemoveSnapshot removes the snapshot with this name and id of the RBD image at path with this
// fingerprint. It returns nil if there is none.
func (s Storage) RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error {
	return snapshotError(path, s.Network.RemoveSnapshot(ctx, path, fingerprint, name, id))
}

func snapshotError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("look at %s: %w: %w", path, ErrSilent, err)
	}
	return cannotReach(path, err)
}
