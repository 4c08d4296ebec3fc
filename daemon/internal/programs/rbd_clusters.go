// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"encoding/json"
	"net"
	"os"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/medium"
)

// NetworkAccess returns this host's access to images on the network. The keys of Ceph clusters are
// libvirt secrets.
func NetworkAccess(cfg *config.Config, conn *libvirt.Conn) network.Access {
	access := network.Access{Dial: dialServers()}
	if len(cfg.RBDClusters) == 0 {
		return access
	}
	access.RBD = &rbd.Client{Clusters: cfg.RBDClusters, Secret: conn.Secret, Reach: &rbd.Host{
		Clusters: func() (rbd.Clusters, error) { return cfg.RBDClusters, nil },
	}}
	if socket := os.Getenv(EnvStorage); socket != "" {
		access.RBD.Reach = storageBeside{socket}
	}
	return access
}

type storageBeside struct{ socket string }

// Check implements rbd.Reach.
func (s storageBeside) Check(ctx context.Context, cluster string, key *os.File) error {
	return sandbox.CheckStorage(ctx, s.socket, cluster, key)
}

// Look implements rbd.Reach.
func (s storageBeside) Look(ctx context.Context, image medium.RBDImage, key *os.File) (info rbd.Info, err error) {
	text, err := sandbox.LookAtStorage(ctx, s.socket, image.URI(), key)
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	return info, err
}

// Watchers implements rbd.Reach.
func (s storageBeside) Watchers(ctx context.Context, image medium.RBDImage, key *os.File) (addresses []string, err error) {
	text, err := sandbox.WatchersOfStorage(ctx, s.socket, image.URI(), key)
	if err == nil {
		err = json.Unmarshal(text, &addresses)
	}
	return addresses, err
}

// Snapshot implements rbd.Reach.
func (s storageBeside) Snapshot(ctx context.Context, image medium.RBDImage, query rbd.SnapshotQuery, key *os.File) (snapshot rbd.Snapshot, err error) {
	text, err := json.Marshal(query)
	if err == nil {
		text, err = sandbox.SnapshotOfStorage(ctx, s.socket, image.URI(), text, key)
	}
	if err == nil {
		err = json.Unmarshal(text, &snapshot)
	}
	return snapshot, err
}

// Change implements rbd.Reach.
func (s storageBeside) Change(ctx context.Context, image medium.RBDImage, change rbd.Change, key *os.File) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return sandbox.ChangeStorage(ctx, s.socket, image.URI(), text, key)
}

// Dial implements rbd.Reach.
func (s storageBeside) Dial(ctx context.Context, image medium.RBDImage, writable bool, key *os.File) (net.Conn, error) {
	return sandbox.OpenStorage(ctx, s.socket, image.URI(), writable, key)
}
