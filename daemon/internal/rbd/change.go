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

	"github.com/volferry/volferry/internal/api"
)

// removeTimeout is how long rbd may take to remove an image: without an object map it asks for each object that the
// image could have. What is cut off goes on when it is asked for again.
const removeTimeout = 10 * time.Minute

// features of an image that is made here: those that Ceph gives by itself, whatever the configuration of a host says.
// The exclusive lock has to be among them (Info.Fence).
const features = "layering,exclusive-lock,object-map,fast-diff,deep-flatten"

// Change is one change of an image: one of CreateBytes, RenameTo and Remove is set. It may be asked for twice.
type Change struct {
	// CreateBytes makes an image of this size that reads as zeros. The error wraps unix.EEXIST if there is one of that name.
	CreateBytes int64 `json:"create_bytes,omitempty"`
	// RenameTo gives the image with the ID another name in its pool. The error wraps unix.EEXIST if there is another
	// image of that name.
	RenameTo string `json:"rename_to,omitempty"`
	// Remove deletes the image with the ID, for good. It is no error if there is none.
	Remove bool `json:"remove,omitempty"`
	// ID is that of the image that is renamed or removed: another one of its name is refused.
	ID string `json:"id,omitempty"`
}

// Change implements Reach.
func (h *Host) Change(ctx context.Context, image api.RBDImage, change Change, key *os.File) error {
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
	}
	return errors.New("there is nothing to change")
}

func (c Cluster) rename(ctx context.Context, image api.RBDImage, change Change, key *os.File) error {
	to := image
	to.Name = change.RenameTo
	if err := to.Check(); err != nil {
		return err
	}
	err := c.is(ctx, image, change.ID, key)
	if errors.Is(err, unix.ENOENT) { // it may have its new name already
		return c.is(ctx, to, change.ID, key)
	}
	if err != nil {
		return err
	}
	return c.change(ctx, key, toolTimeout, "rename", image.Spec(), to.Spec())
}

func (c Cluster) remove(ctx context.Context, image api.RBDImage, id string, key *os.File) error {
	err := c.is(ctx, image, id, key)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.change(ctx, key, removeTimeout, "rm", "--no-progress", image.Spec())
}

// is refuses another image than the one with the id.
func (c Cluster) is(ctx context.Context, image api.RBDImage, id string, key *os.File) error {
	info, err := c.look(ctx, image, key)
	if err == nil && info.ID != id {
		err = fmt.Errorf("%s is another image by now: its id is %s, and was %s", image.Spec(), info.ID, id)
	}
	return err
}

// change runs rbd for something that it does.
func (c Cluster) change(ctx context.Context, key *os.File, timeout time.Duration, args ...string) error {
	_, err := c.run(ctx, timeout, key, "rbd", args...)
	var failed *toolError
	if errors.As(err, &failed) && strings.Contains(failed.stderr, "(17) File exists") {
		return fmt.Errorf("%w: %w", err, unix.EEXIST)
	}
	return err
}
