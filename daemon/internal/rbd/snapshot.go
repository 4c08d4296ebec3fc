// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/medium"
)

// diffTimeout is how long rbd may take to compare an image with a snapshot. rbd requests each
// object that the image could have; for 1 TiB that took 30 s.
const diffTimeout = 10 * time.Minute

// snapshotPrefix begins the names of Volferry's snapshots. Volferry makes and removes no other
// snapshots.
const snapshotPrefix = "volferry-"

// SnapshotName returns the name of the snapshot with this id, a UUID.
func SnapshotName(id string) string { return snapshotPrefix + id }

func checkSnapshotName(name string) error {
	if id, ours := strings.CutPrefix(name, snapshotPrefix); ours {
		if parsed, err := uuid.Parse(id); err == nil && parsed.String() == id {
			return nil
		}
	}
	return fmt.Errorf("%.60q is no name of a snapshot that Volferry makes", name)
}

// Snapshot is a cluster's description of a snapshot.
type Snapshot struct {
	// ID is unique in the pool and never reused, whatever the snapshot's name. It is 0 if there is
	// no snapshot.
	ID uint64 `json:"id,omitempty"`
	// Protected is true if the snapshot cannot be removed, for example because of clones.
	Protected bool `json:"protected,omitempty"`
	// Written is true if the image was written since, even with the same data. It is only set with
	// SnapshotQuery.Compare.
	Written bool `json:"written,omitempty"`
}

// SnapshotQuery is a query for a snapshot of an image.
type SnapshotQuery struct {
	Name string `json:"name"`
	// Compare requests Snapshot.Written too.
	Compare bool `json:"compare,omitempty"`
}

// Snapshot implements Reach.
func (h *Host) Snapshot(ctx context.Context, image medium.RBDImage, query SnapshotQuery, key *os.File) (Snapshot, error) {
	if err := checkSnapshotName(query.Name); err != nil {
		return Snapshot{}, err
	}
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := c.snapshot(ctx, image, query.Name, key)
	if err == nil && query.Compare && s.ID != 0 {
		err = c.compare(ctx, image, query.Name, &s, key)
	}
	return s, err
}

func (c Cluster) snapshot(ctx context.Context, image medium.RBDImage, name string, key *os.File) (Snapshot, error) {
	text, err := c.askText(ctx, toolTimeout, image, key, "snap", "ls")
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotIn(text, name)
}

func snapshotIn(text []byte, name string) (Snapshot, error) {
	var all []struct {
		ID        uint64 `json:"id"`
		Name      string `json:"name"`
		Protected string `json:"protected"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return Snapshot{}, fmt.Errorf("read what rbd snap ls says: %w", err)
	}
	for _, s := range all {
		if s.Name == name {
			return Snapshot{ID: s.ID, Protected: s.Protected == "true"}, nil
		}
	}
	return Snapshot{}, nil
}

// compare sets s.Written if an image was written since a snapshot. If the snapshot was removed
// meanwhile, it clears s. It runs rbd without --whole-object, so that rbd asks the OSDs which data
// of each object they keep for its snapshots. With that option rbd would trust the image's object
// map, which a client maintains and which only has whole objects.
func (c Cluster) compare(ctx context.Context, image medium.RBDImage, name string, s *Snapshot, key *os.File) error {
	text, err := c.askText(ctx, diffTimeout, image, key, "diff", "--from-snap", name)
	var failed *toolError
	if errors.As(err, &failed) && strings.Contains(failed.stderr, "diff error: (2)") {
		*s = Snapshot{}
		return nil
	}
	if err == nil {
		s.Written, err = differs(text)
	}
	return err
}

func differs(text []byte) (bool, error) {
	var extents []json.RawMessage
	if err := json.Unmarshal(text, &extents); err != nil {
		return false, fmt.Errorf("read what rbd diff says: %w", err)
	}
	return len(extents) > 0, nil
}
