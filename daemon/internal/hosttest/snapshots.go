// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// ErrNoSnapshots is a cluster's error for a user without the right to make snapshots.
var ErrNoSnapshots = errors.New("error opening image: (1) Operation not permitted")

// Snapshot describes a snapshot of an RBD image.
func (i *Images) Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error) {
	if i.Fake.Silent(path) {
		return rbd.Snapshot{}, image.ErrSilent
	}
	s, err := i.Fake.ImageSnapshot(ctx, path, name)
	return rbd.Snapshot{ID: s.ID, Protected: s.Protected, Written: compare && s.Written}, absent(err)
}

// MakeSnapshot makes a snapshot of the RBD image with this fingerprint. If NoSnapshots is set, it
// returns that error.
func (i *Images) MakeSnapshot(ctx context.Context, path, fingerprint, name string) error {
	if i.NoSnapshots != nil {
		return i.NoSnapshots
	}
	if err := i.isStill(ctx, path, fingerprint); err != nil {
		return err
	}
	return absent(i.Fake.MakeImageSnapshot(ctx, path, name))
}

// RemoveSnapshot removes a snapshot of the RBD image with this fingerprint.
func (i *Images) RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error {
	if i.Fake.Silent(path) {
		return image.ErrSilent
	}
	if err := i.isStill(ctx, path, fingerprint); err != nil {
		return err
	}
	return absent(i.Fake.RemoveImageSnapshot(ctx, path, name, id))
}

func (i *Images) isStill(ctx context.Context, path, fingerprint string) error {
	now, err := i.Fingerprint(ctx, path)
	if err == nil && now != fingerprint {
		err = errors.New(path + " is another image by now")
	}
	return err
}
