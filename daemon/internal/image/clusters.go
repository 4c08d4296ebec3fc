// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

type clusters struct{ addressed }

func (s Storage) clusters() clusters { return clusters{addressed{s.Network, s.Files, unix.ENOENT}} }

func (c clusters) fingerprint(ctx context.Context, path string) (string, error) {
	info, err := c.network.RBD.Look(ctx, path)
	if err != nil {
		return "", c.cannotReach(path, err)
	}
	return rbd.Fingerprint(info.ID, path), nil
}

func (c clusters) inUse(ctx context.Context, path string, ours rbd.Count) (string, error) {
	who, err := c.network.RBD.Holders(ctx, path, ours)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return who, err
}

// mayOpen returns nil, because a cluster identifies its users by their keys.
func (clusters) mayOpen(qemuUser, string) error { return nil }

func (c clusters) create(ctx context.Context, img hv.Image, sizeBytes int64, about NewFile) error {
	whole := func(id string) error { return about.Whole(rbd.Fingerprint(id, img.Path)) }
	err := c.network.RBD.Make(ctx, img.Path, about.Temporary, sizeBytes, whole)
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	return c.cannotReach(img.Path, err)
}

// removeMade deletes the image once no client has it open. If the fingerprint is empty, the
// address must be unique, so that no other program can have used it.
func (c clusters) removeMade(ctx context.Context, path, fingerprint string) error {
	id := ""
	if fingerprint != "" {
		var err error
		if id, err = rbd.IDIn(fingerprint); err != nil {
			return c.cannotReach(path, err)
		}
	}
	return c.cannotReach(path, c.network.RBD.Remove(ctx, path, id))
}

// flush does nothing: the guest's flushes went to the cluster.
func (clusters) flush(context.Context, string) error { return nil }

func (clusters) answers(context.Context, string) error { return nil }

func (c clusters) fence(ctx context.Context, path string) error {
	return c.cannotReach(path, c.network.RBD.Fence(ctx, path))
}
