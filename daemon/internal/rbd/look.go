// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// Info is a cluster's description of an image.
type Info struct {
	SizeBytes int64 `json:"size_bytes"`
	// ID is unique in the pool and never reused, whatever the image's name.
	ID string `json:"id"`
	// Fenced is true if a client that has the image open for writing cannot write any more once
	// another client has it (the feature exclusive-lock).
	Fenced bool `json:"fenced"`
	// DirtyCache is true if a client has writes in its own persistent cache
	// (rbd_persistent_cache_mode) that the cluster lacks. They may include flushed writes.
	DirtyCache bool `json:"dirty_cache,omitempty"`
}

func (i Info) whole(image medium.RBDImage) error {
	if !i.DirtyCache {
		return nil
	}
	return fmt.Errorf("a client of the image has writes in a persistent cache of its own (rbd_persistent_cache_mode), which the cluster does not have; "+
		"with the guest stopped, on the client's host, `%s` puts them there, and where that cache is gone, `%s` drops them",
		shell.Line("rbd", "persistent-cache", "flush", "--", image.Spec()), shell.Line("rbd", "persistent-cache", "invalidate", "--", image.Spec()))
}

func (i Info) fence(image medium.RBDImage) error {
	if i.Fenced {
		return nil
	}
	return fmt.Errorf("it has no exclusive lock, without which a client that was killed could write later what it had begun: `%s`", shell.Line("rbd", "feature", "enable", "--", image.Spec(), "exclusive-lock"))
}

// Host reaches clusters from this process, which needs network access.
type Host struct {
	Clusters func() (Clusters, error)

	mu    sync.Mutex
	known map[string]bool
}

func (h *Host) cluster(ctx context.Context, image medium.RBDImage, key *os.File) (Cluster, error) {
	all, err := h.Clusters()
	if err != nil {
		return Cluster{}, err
	}
	c, err := all.Find(image)
	if err != nil {
		return Cluster{}, err
	}
	return c, h.checkID(ctx, image.Cluster, c, key)
}

// checkID refuses monitors that belong to another cluster, which may have images of the same
// names.
func (h *Host) checkID(ctx context.Context, id string, c Cluster, key *os.File) error {
	way := fmt.Sprint(id, c)
	h.mu.Lock()
	known := h.known[way]
	h.mu.Unlock()
	if known {
		return nil
	}
	out, err := c.output(ctx, key, "ceph", "fsid")
	if err != nil {
		return err
	}
	if is := strings.TrimSpace(string(out)); is != id {
		return fmt.Errorf("the monitors %s are those of cluster %.60q, and not of %s: rbd_clusters of volferryd.toml is wrong", strings.Join(c.Monitors, ", "), is, id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]bool{}
	}
	h.known[way] = true
	return nil
}

// Look implements Reach.
func (h *Host) Look(ctx context.Context, image medium.RBDImage, key *os.File) (Info, error) {
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return Info{}, err
	}
	return c.look(ctx, image, key)
}

func (c Cluster) look(ctx context.Context, image medium.RBDImage, key *os.File) (Info, error) {
	var info struct {
		ID       string   `json:"id"`
		Size     int64    `json:"size"`
		Features []string `json:"features"`
	}
	if err := c.ask(ctx, image, key, "info", &info); err != nil {
		return Info{}, err
	}
	if info.ID == "" || info.Size <= 0 {
		return Info{}, fmt.Errorf("rbd says of the image neither an id nor a size: an image of format 1 cannot be told from another one of its name")
	}
	has := func(feature string) bool { return slices.Contains(info.Features, feature) }
	return Info{SizeBytes: info.Size, ID: info.ID, Fenced: has("exclusive-lock"), DirtyCache: has("dirty-cache")}, nil
}

// Watchers implements Reach.
func (h *Host) Watchers(ctx context.Context, image medium.RBDImage, key *os.File) (addresses []string, err error) {
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return nil, err
	}
	var status struct {
		Watchers []struct {
			Address string `json:"address"`
		} `json:"watchers"`
	}
	if err := c.ask(ctx, image, key, "status", &status); err != nil {
		return nil, err
	}
	for _, w := range status.Watchers {
		addresses = append(addresses, w.Address)
	}
	return addresses, nil
}

func (c Cluster) ask(ctx context.Context, image medium.RBDImage, key *os.File, what string, into any) error {
	text, err := c.askText(ctx, toolTimeout, image, key, what)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read what rbd %s says: %w", what, err)
	}
	return nil
}

// askText returns rbd's information about an image as JSON. The error wraps unix.ENOENT if there
// is no image.
func (c Cluster) askText(ctx context.Context, timeout time.Duration, image medium.RBDImage, key *os.File, what ...string) ([]byte, error) {
	text, err := c.run(ctx, timeout, key, "rbd", append(what, "--format", "json", "--pool", image.Pool, "--image", image.Name)...)
	var failed *toolError
	switch {
	case !errors.As(err, &failed):
		return text, err
	case strings.Contains(failed.stderr, "error opening image "+image.Name+": (2)"):
		return nil, fmt.Errorf("%w: %w", err, unix.ENOENT)
	case strings.Contains(failed.stderr, "(110) Connection timed out"): // with a shorter rados_osd_op_timeout
		return nil, fmt.Errorf("%w: %w", err, ErrNoAnswer)
	}
	return nil, err
}
