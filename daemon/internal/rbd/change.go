// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/medium"
)

// removeTimeout is how long rbd may take to remove an image: without an object map it tries each
// object that the image could have. A repeated request continues an interrupted removal.
const removeTimeout = 10 * time.Minute

// features are the features of a new image: Ceph's defaults, regardless of a host's configuration.
// They must include the exclusive lock (Info.Fenced).
const features = "layering,exclusive-lock,object-map,fast-diff,deep-flatten"

// Change is one change of an image: exactly one of CreateBytes, RenameTo, Remove, Snapshot and
// RemoveSnapshot is set. It may be repeated.
type Change struct {
	// CreateBytes makes an image of this size that reads as zeros. The error wraps unix.EEXIST if
	// the name is taken.
	CreateBytes int64 `json:"create_bytes,omitempty"`
	// RenameTo renames the image with the ID in its pool. The error wraps unix.EEXIST if another
	// image has the name.
	RenameTo string `json:"rename_to,omitempty"`
	// Remove permanently deletes the image with the ID. It is no error if the image is absent.
	Remove bool `json:"remove,omitempty"`
	// Snapshot makes a snapshot of the image with the ID. The error wraps unix.EEXIST if the name
	// is taken.
	Snapshot string `json:"snapshot,omitempty"`
	// RemoveSnapshot removes the snapshot with this name and the SnapshotID from the image with
	// the ID. It is no error if the snapshot is absent.
	RemoveSnapshot string `json:"remove_snapshot,omitempty"`
	SnapshotID     uint64 `json:"snapshot_id,omitempty"`
	// ID is the id of an existing image. Another image with the same name is refused.
	ID string `json:"id,omitempty"`
}

// Change implements Reach.
func (h *Host) Change(ctx context.Context, image medium.RBDImage, change Change, key *os.File) error {
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return err
	}
	switch {
	case change.CreateBytes > 0:
		return c.change(ctx, key, toolTimeout, "create", "--size", fmt.Sprintf("%dB", change.CreateBytes), "--image-feature", features, image.Spec())
	case change.RenameTo != "":
		return c.rename(ctx, image, change, key)
	case change.Remove:
		return c.remove(ctx, image, change.ID, key)
	case change.Snapshot != "":
		return c.makeSnapshot(ctx, image, change, key)
	case change.RemoveSnapshot != "":
		return c.removeSnapshot(ctx, image, change, key)
	}
	return errors.New("there is nothing to change")
}

func (c Cluster) rename(ctx context.Context, image medium.RBDImage, change Change, key *os.File) error {
	to := image
	to.Name = change.RenameTo
	if err := to.Check(); err != nil {
		return err
	}
	err := c.is(ctx, image, change.ID, key)
	if errors.Is(err, unix.ENOENT) { // a repeated rename: the image may have its new name already
		return c.is(ctx, to, change.ID, key)
	}
	if err != nil {
		return err
	}
	return c.change(ctx, key, toolTimeout, "rename", image.Spec(), to.Spec())
}

func (c Cluster) remove(ctx context.Context, image medium.RBDImage, id string, key *os.File) error {
	err := c.is(ctx, image, id, key)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.change(ctx, key, removeTimeout, "rm", "--no-progress", image.Spec())
}

// makeSnapshot makes a snapshot of an image. If a client has the image's exclusive lock, as a
// guest's QEMU has after a write, that client makes the snapshot and keeps its lock. makeSnapshot
// waits at most toolTimeout for such a client. After 30 s Ceph would consider the client dead: rbd
// would break the lock, and the client would lose all access to the cluster.
func (c Cluster) makeSnapshot(ctx context.Context, image medium.RBDImage, change Change, key *os.File) error {
	if err := checkSnapshotName(change.Snapshot); err != nil {
		return err
	}
	if err := c.is(ctx, image, change.ID, key); err != nil {
		return err
	}
	return c.change(ctx, key, toolTimeout, "snap", "create", "--no-progress", image.Spec()+"@"+change.Snapshot)
}

func (c Cluster) removeSnapshot(ctx context.Context, image medium.RBDImage, change Change, key *os.File) error {
	if err := checkSnapshotName(change.RemoveSnapshot); err != nil {
		return err
	}
	err := c.is(ctx, image, change.ID, key)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := c.snapshot(ctx, image, change.RemoveSnapshot, key)
	switch {
	case err != nil:
		return err
	case s.ID == 0:
		return nil
	case s.ID != change.SnapshotID:
		return fmt.Errorf("%s@%s is another snapshot by now: its id is %d, and was %d", image.Spec(), change.RemoveSnapshot, s.ID, change.SnapshotID)
	}
	return c.change(ctx, key, toolTimeout, "snap", "rm", "--no-progress", image.Spec()+"@"+change.RemoveSnapshot)
}

func (c Cluster) is(ctx context.Context, image medium.RBDImage, id string, key *os.File) error {
	info, err := c.look(ctx, image, key)
	if err == nil && info.ID != id {
		err = fmt.Errorf("%s is another image by now: its id is %s, and was %s", image.Spec(), info.ID, id)
	}
	return err
}

func (c Cluster) change(ctx context.Context, key *os.File, timeout time.Duration, args ...string) error {
	_, err := c.run(ctx, timeout, key, "rbd", args...)
	var failed *toolError
	if errors.As(err, &failed) && strings.Contains(failed.stderr, "(17) File exists") {
		return fmt.Errorf("%w: %w", err, unix.EEXIST)
	}
	return err
}
