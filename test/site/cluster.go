// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Cluster is several hosts, each with a libvirtd of its own, and one registry
// that they reach over TLS with certificates of the site's authority.
type Cluster struct {
	Dir      string
	Registry *Registry
	Hosts    []*Host
	// Shared is a directory that every host sees, for pools.
	Shared string
}

// StartCluster starts a registry and hosts of these names with their state below
// dir, whose path must be short (lab.TempDir). Pools of the names in shared are
// told to the daemons as seen by all; making them is the caller's. Close must be
// called.
func StartCluster(ctx context.Context, dir, bin string, shared []string, names ...string) (*Cluster, error) {
	c := &Cluster{Dir: dir, Registry: NewRegistry(filepath.Join(dir, "r"), bin), Shared: filepath.Join(dir, "shared")}
	// QEMU, which is not root, passes through.
	for _, d := range []string{c.Registry.Dir, c.Shared} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, fmt.Errorf("start cluster: %w", err)
		}
	}
	if err := c.Registry.InitTLS(ctx); err != nil {
		return nil, err
	}
	if err := c.Registry.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for i, name := range names {
		h, err := NewHost(ctx, filepath.Join(dir, fmt.Sprintf("h%d", i)), bin, name)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Hosts = append(c.Hosts, h)
		h.Registry, h.TLS, h.SharedPools = c.Registry.URL(), filepath.Join(h.Dir, "tls"), shared
		if err := errors.Join(c.Registry.Issue(ctx, h.TLS, "host", name), h.StartDaemon(ctx)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Logs are the ends of the programs' logs, for a test that failed.
func (c *Cluster) Logs() string {
	out := Tails(c.Registry.Log())
	for _, h := range c.Hosts {
		out += fmt.Sprintf("=== host %s\n%s", h.Name, Tails(h.Log()))
	}
	return out
}

// Close stops everything. Guests must be closed before.
func (c *Cluster) Close() error {
	var errs []error
	for _, h := range c.Hosts {
		errs = append(errs, h.Close())
	}
	c.Registry.Stop()
	return errors.Join(errs...)
}
