// SPDX-License-Identifier: Apache-2.0

// Package rbd reaches the images of Ceph clusters. It uses Ceph's tools to describe an image and
// its clients, and lets qemu-storage-daemon serve one. These programs get the key of a cluster's
// user only as an open file.
package rbd

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// Cluster is a host's access to a Ceph cluster, as in the configuration and in domain definitions.
type Cluster struct {
	// Monitors are the monitors' addresses, as HOST:PORT.
	Monitors []string `toml:"monitors"`
	// User is the user's name without "client.".
	User string `toml:"user"`
	// Secret is the UUID of the libvirt secret with the user's key.
	Secret string `toml:"secret"`
}

// Clusters are the clusters that a host may use, by the clusters' ids (ceph fsid).
type Clusters map[string]Cluster

// IDs returns the ids of the clusters, in order.
func (c Clusters) IDs() []string { return slices.Sorted(maps.Keys(c)) }

// Of returns the id of the cluster with this monitor, HOST:PORT, or "".
func (c Clusters) Of(monitor string) string {
	for _, id := range c.IDs() {
		if slices.Contains(c[id].Monitors, monitor) {
			return id
		}
	}
	return ""
}

// Find returns the cluster of an image.
func (c Clusters) Find(image medium.RBDImage) (Cluster, error) {
	cluster, found := c[image.Cluster]
	if !found {
		return cluster, api.Errorf(api.CodePermissionDenied, "Ceph cluster %s is not in rbd_clusters of volferryd.toml; list it there, with its monitors, user and secret", image.Cluster)
	}
	return cluster, nil
}

// Check refuses invalid clusters, and clusters with a common monitor, because they could be
// confused.
func (c Clusters) Check() error {
	of := map[string]string{}
	for _, id := range c.IDs() {
		if err := medium.CheckCluster(id); err != nil {
			return err
		}
		if err := c[id].check(); err != nil {
			return fmt.Errorf("cluster %s: %w", id, err)
		}
		for _, monitor := range c[id].Monitors {
			if other, taken := of[monitor]; taken {
				return fmt.Errorf("monitor %s is named twice, for cluster %s and cluster %s", monitor, other, id)
			}
			of[monitor] = id
		}
	}
	return nil
}

func (c Cluster) check() error {
	if len(c.Monitors) == 0 {
		return fmt.Errorf("it has no monitors")
	}
	for _, monitor := range c.Monitors {
		if err := medium.CheckServer("monitor", monitor); err != nil {
			return err
		}
	}
	if c.User == "" || strings.ContainsFunc(c.User, isNotOfUser) || strings.HasPrefix(c.User, "-") || strings.HasPrefix(c.User, "client.") {
		return fmt.Errorf("user is %.60q; it must be the name of a cephx user without client., of letters, digits and . _ -", c.User)
	}
	if id, err := uuid.Parse(c.Secret); err != nil || id.String() != c.Secret {
		return fmt.Errorf("secret is %.60q; it must be the UUID of a secret of libvirt (virsh secret-list), in lower case", c.Secret)
	}
	return nil
}

func isNotOfUser(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._-", r)
}
