// SPDX-License-Identifier: Apache-2.0

package rbd_test

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const (
	id     = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"
	secret = "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"
)

func cluster(change func(*rbd.Cluster)) rbd.Cluster {
	c := rbd.Cluster{Monitors: []string{"mon1.example:6789", "10.0.0.2:3300"}, User: "libvirt", Secret: secret}
	if change != nil {
		change(&c)
	}
	return c
}

func TestClustersThatCouldNotBeAreRefused(t *testing.T) {
	if err := (rbd.Clusters{id: cluster(nil)}).Check(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]rbd.Clusters{
		"no id":           {"main": cluster(nil)},
		"no monitors":     {id: cluster(func(c *rbd.Cluster) { c.Monitors = nil })},
		"no port":         {id: cluster(func(c *rbd.Cluster) { c.Monitors = []string{"mon1"} })},
		"an option":       {id: cluster(func(c *rbd.Cluster) { c.Monitors = []string{"-x:1"} })},
		"a list in one":   {id: cluster(func(c *rbd.Cluster) { c.Monitors = []string{"a:1,b:1"} })},
		"no user":         {id: cluster(func(c *rbd.Cluster) { c.User = "" })},
		"the long user":   {id: cluster(func(c *rbd.Cluster) { c.User = "client.libvirt" })},
		"a path as user":  {id: cluster(func(c *rbd.Cluster) { c.User = "../x" })},
		"no secret":       {id: cluster(func(c *rbd.Cluster) { c.Secret = "" })},
		"a key":           {id: cluster(func(c *rbd.Cluster) { c.Secret = "AQAAAAAAAAAAABAAexampleexampleexample==" })},
		"a monitor twice": {id: cluster(func(c *rbd.Cluster) { c.Monitors = []string{"a:1", "a:1"} })},
		"of two clusters": {id: cluster(nil), "00000000-58a1-4ac3-8f0e-0e3c6f0f7a11": cluster(nil)},
	} {
		if err := bad.Check(); err == nil {
			t.Errorf("%s is taken: %+v", name, bad)
		}
	}
	if _, err := (rbd.Clusters{}).Find(medium.RBDImage{Cluster: id}); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("an image of a cluster that is not listed: %v", err)
	}
}
