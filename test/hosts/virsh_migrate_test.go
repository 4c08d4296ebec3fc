// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// Somebody has libvirt take a guest to another host while its volume moves. That host sees the
// overlay here, and the guest writes to it from there.
func TestAGuestThatVirshTakesToAnotherHostInItsMoveKeepsItsOverlay(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	h1, h2 := c.Hosts[0], c.Hosts[1]
	g := c.mobile(t, "nomad")
	ctl(t, h1.Caller, "instance", "start", g.Name)
	assertBooted(t, g, "nomad")
	g.write(t, "vdb")
	d := disk{Volume: get[api.Volume](t, h1.Caller, "volume", "volume", "show", g.Name+"-vdb")}
	m := get[api.Migration](t, h1.Caller, "migration", "migration", "start", d.Attachments[0].ID, "--to-pool", newSharedPool)
	g.write(t, "vdb")
	ctl(t, h1.Caller, "migration", "copy", m.ID)
	there := g.goes(t, h2)
	there.write(t, "vdb")

	images := []string{m.Src.Path, m.Dst.Path, filepath.Join(h1.Overlays(), m.ID+".qcow2")}
	for _, word := range []string{"complete", "cancel"} {
		_, err := h1.Ctl(t.Context(), "-o", "json", "--progress", "none", "migration", word, m.ID)
		if err == nil {
			t.Fatalf("%s of a volume whose guest runs on another host", word)
		}
		t.Log(err)
		there.write(t, "vdb")
		for _, image := range images {
			if _, err := os.Stat(image); err != nil {
				t.Error(err)
			}
		}
	}

	back := there.goes(t, h1)
	back.write(t, "vdb")
	ctl(t, h1.Caller, "--progress", "none", "migration", "cancel", m.ID)
	back.write(t, "vdb")
	back.quiesce(t, "vdb")
	if err := back.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := get[api.Volume](t, h1.Caller, "volume", "volume", "show", d.ID).Location; at != d.Location {
		t.Errorf("the volume is at %+v, want %+v", at, d.Location)
	}
	assertHolds(t, d, d.Location, g.History("vdb"))
}

// goes has libvirt take the guest, which runs, to another host, and returns it there.
func (g *guest) goes(t *testing.T, to *site.Host) *guest {
	t.Helper()
	address, err := lab.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.host.Libvirtd.Virsh(t.Context(), "migrate", "--live", "--persistent", "--undefinesource", "--unsafe", g.Name, to.Libvirtd.URI(), "tcp://"+address); err != nil {
		t.Fatal(err)
	}
	return &guest{Guest: g.At(to.Libvirtd.Connection), host: to, disks: g.disks}
}
