// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// TestARegistryThatGoesToAnotherMachineIsFoundInTheMiddleOfAMove: the host has the URLs of two
// machines, and the registry dies on one and is started on the other with its database, as a
// cluster manager does it, while a guest's volume moves; and back. An operator elsewhere, who has
// both URLs, finds it, too.
func TestARegistryThatGoesToAnotherMachineIsFoundInTheMiddleOfAMove(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1")
	h := c.Hosts[0]
	here := c.Registry.Listen
	there, err := lab.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.StopDaemon()
	h.Registry = "https://" + here + ",https://" + there
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := c.guest(t, h)
	g.write(t, "vda")
	tls := filepath.Join(c.Registry.Dir, "ann")
	if err := c.Registry.Issue(t.Context(), tls, "operator", "ann", "--role", "read"); err != nil {
		t.Fatal(err)
	}
	ann := h.Caller
	ann.Socket = h.Registry
	asAnn := []string{"--ca", filepath.Join(tls, "ca.crt"), "--cert", filepath.Join(tls, "operator.crt"), "--key", filepath.Join(tls, "operator.key")}

	for _, move := range []struct{ machine, pool string }{{there, otherPool}, {here, localPool}} {
		m := get[api.Migration](t, h.Caller, "migration", "volume", "migrate", g.root(t).Name, "--to-pool", move.pool, "--bandwidth", "2MiB/s", "--no-wait")
		eventually(t, "some of it is copied", func() bool {
			return get[api.Migration](t, h.Caller, "migration", "migration", "show", m.ID).BytesDone > 0
		})
		c.Registry.Kill()
		c.Registry.Listen = move.machine
		if err := c.Registry.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctl(t, h.Caller, "--progress", "none", "migration", "watch", m.ID)
		if at := g.root(t).Location.Pool; at != move.pool {
			t.Errorf("the volume is in pool %s, want %s", at, move.pool)
		}
		if status := ctl(t, h.Caller, "status"); !strings.Contains(status, "https://"+move.machine) {
			t.Errorf("status does not name the registry's machine %s:\n%s", move.machine, status)
		}
		if list := ctl(t, ann, append(asAnn, "volume", "list")...); !strings.Contains(list, g.root(t).Name) {
			t.Errorf("an operator elsewhere, who has both URLs, does not see the volume:\n%s", list)
		}
	}
	g.write(t, "vda")
	g.quiesce(t, "vda")
	root := g.root(t)
	assertHolds(t, disk{Volume: root}, root.Location, g.History("vda"))
}
