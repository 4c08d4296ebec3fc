// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
)

// checkClusters refuses Ceph clusters that could not be.
func (c *config) checkClusters() error {
	if err := c.RBDClusters.Check(); err != nil {
		return fmt.Errorf("rbd_clusters: %w", err)
	}
	return nil
}

// networkAccess is how this host reaches what is no file and no device. The secrets are libvirt's.
func networkAccess(cfg *config, conn *libvirt.Conn) network.Access {
	access := network.Access{Dial: dialServers()}
	if len(cfg.RBDClusters) == 0 {
		return access
	}
	access.RBD = &rbd.Client{Clusters: cfg.RBDClusters, Secret: conn.Secret, Reach: &rbd.Host{
		Clusters: func() (rbd.Clusters, error) { return cfg.RBDClusters, nil },
	}}
	if socket := os.Getenv(envStorage); socket != "" {
		access.RBD.Reach = storageBeside{socket}
	}
	return access
}

// storageBeside reaches clusters by `volferryd storage` at a socket.
type storageBeside struct{ socket string }

// Check implements rbd.Reach.
func (s storageBeside) Check(ctx context.Context, cluster string, key *os.File) error {
	return sandbox.CheckStorage(ctx, s.socket, cluster, key)
}

// Look implements rbd.Reach.
func (s storageBeside) Look(ctx context.Context, image api.RBDImage, key *os.File) (info rbd.Info, err error) {
	text, err := sandbox.LookAtStorage(ctx, s.socket, image.URI(), key)
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	return info, err
}

// Watchers implements rbd.Reach.
func (s storageBeside) Watchers(ctx context.Context, image api.RBDImage, key *os.File) (addresses []string, err error) {
	text, err := sandbox.WatchersOfStorage(ctx, s.socket, image.URI(), key)
	if err == nil {
		err = json.Unmarshal(text, &addresses)
	}
	return addresses, err
}

// Dial implements rbd.Reach.
func (s storageBeside) Dial(ctx context.Context, image api.RBDImage, writable bool, key *os.File) (net.Conn, error) {
	return sandbox.OpenStorage(ctx, s.socket, image.URI(), writable, key)
}

// storageHost is what `volferryd storage` reaches: the clusters of the configuration as it is by now.
// Whoever has the daemon can name an image of them, and no other machine.
type storageHost struct{ *rbd.Host }

func newStorageHost(args []string) storageHost {
	return storageHost{&rbd.Host{Clusters: func() (rbd.Clusters, error) {
		cfg, err := loadConfig(args, io.Discard)
		if err != nil {
			return nil, fmt.Errorf("read which clusters may be reached: %w; chmod 0644 it if it is there, there is no secret in it", err)
		}
		return cfg.RBDClusters, cfg.checkClusters()
	}}}
}

// Look implements sandbox.StorageReach.
func (s storageHost) Look(ctx context.Context, address string, key *os.File) ([]byte, error) {
	return answerOf(ctx, address, key, s.Host.Look)
}

// Watchers implements sandbox.StorageReach.
func (s storageHost) Watchers(ctx context.Context, address string, key *os.File) ([]byte, error) {
	return answerOf(ctx, address, key, s.Host.Watchers)
}

// answerOf is what is asked of an image, as text.
func answerOf[T any](ctx context.Context, address string, key *os.File, ask func(context.Context, api.RBDImage, *os.File) (T, error)) ([]byte, error) {
	image, err := api.ParseRBD(address)
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
func (s storageHost) Open(ctx context.Context, address string, writable bool, key *os.File) (*os.File, func() error, error) {
	image, err := api.ParseRBD(address)
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
