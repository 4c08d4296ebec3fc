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

// Snapshot describes a snapshot of an RBD image. With compare it also reports whether the image
// was written since. Like MakeSnapshot and RemoveSnapshot it returns ErrAbsent without an image,
// and ErrSilent if the cluster does not answer.
func (s Storage) Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error) {
	snapshot, err := s.Network.RBD.Snapshot(ctx, path, rbd.SnapshotQuery{Name: name, Compare: compare})
	return snapshot, s.clusters().snapshotError(path, err)
}

// MakeSnapshot makes a snapshot of the RBD image at path with this fingerprint.
func (s Storage) MakeSnapshot(ctx context.Context, path, fingerprint, name string) error {
	return s.clusters().changeSnapshot(ctx, path, fingerprint, rbd.Change{Snapshot: name})
}

// RemoveSnapshot removes the snapshot with this name and id of the RBD image at path with this
// fingerprint. It returns nil if there is none.
func (s Storage) RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error {
	return s.clusters().changeSnapshot(ctx, path, fingerprint, rbd.Change{RemoveSnapshot: name, SnapshotID: id})
}

func (c clusters) changeSnapshot(ctx context.Context, path, fingerprint string, change rbd.Change) error {
	id, err := rbd.IDIn(fingerprint)
	if err == nil {
		change.ID = id
		err = c.network.RBD.Change(ctx, path, change)
	}
	return c.snapshotError(path, err)
}

func (c clusters) snapshotError(path string, err error) error {
	if errors.Is(err, unix.ETIMEDOUT) {
		return fmt.Errorf("look at %s: %w: %w", path, ErrSilent, err)
	}
	return c.cannotReach(path, err)
}
