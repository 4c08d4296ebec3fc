// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// StorageHost reaches the clusters of the present configuration for `volferryd storage`. An
// attacker who controls the daemon can reach their images through it, but no other machine.
type StorageHost struct{ *rbd.Host }

// NewStorageHost returns the helper with the clusters of the configuration that args name.
func NewStorageHost(args []string) StorageHost {
	return StorageHost{&rbd.Host{Clusters: func() (rbd.Clusters, error) {
		cfg, err := config.Load(args, io.Discard)
		if err != nil {
			return nil, fmt.Errorf("read which clusters may be reached: %w; chmod 0644 it if it is there, there is no secret in it", err)
		}
		return cfg.RBDClusters, cfg.CheckClusters()
	}}}
}

// Look implements sandbox.StorageReach.
func (s StorageHost) Look(ctx context.Context, address string, key *os.File) ([]byte, error) {
	return answerOf(ctx, address, key, s.Host.Look)
}

// Watchers implements sandbox.StorageReach.
func (s StorageHost) Watchers(ctx context.Context, address string, key *os.File) ([]byte, error) {
	return answerOf(ctx, address, key, s.Host.Watchers)
}

// Snapshot implements sandbox.StorageReach.
func (s StorageHost) Snapshot(ctx context.Context, address string, text []byte, key *os.File) ([]byte, error) {
	var query rbd.SnapshotQuery
	if err := json.Unmarshal(text, &query); err != nil {
		return nil, fmt.Errorf("read what is asked of a snapshot: %w", err)
	}
	return answerOf(ctx, address, key, func(ctx context.Context, image medium.RBDImage, key *os.File) (rbd.Snapshot, error) {
		return s.Host.Snapshot(ctx, image, query, key)
	})
}

// Change implements sandbox.StorageReach.
func (s StorageHost) Change(ctx context.Context, address string, text []byte, key *os.File) error {
	image, err := medium.ParseRBD(address)
	if err != nil {
		return err
	}
	var change rbd.Change
	if err := json.Unmarshal(text, &change); err != nil {
		return fmt.Errorf("read what is to be changed: %w", err)
	}
	return s.Host.Change(ctx, image, change, key)
}

func answerOf[T any](ctx context.Context, address string, key *os.File, ask func(context.Context, medium.RBDImage, *os.File) (T, error)) ([]byte, error) {
	image, err := medium.ParseRBD(address)
	if err != nil {
		return nil, err
	}
	out, err := ask(ctx, image, key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// Open implements sandbox.StorageReach.
func (s StorageHost) Open(ctx context.Context, address string, writable bool, key *os.File) (*os.File, func() error, error) {
	image, err := medium.ParseRBD(address)
	if err != nil {
		return nil, nil, err
	}
	served, err := s.Serve(ctx, image, writable, key)
	if err != nil {
		return nil, nil, err
	}
	conn, err := served.HandOver()
	if err != nil {
		return nil, nil, err
	}
	return conn, served.Close, nil
}
