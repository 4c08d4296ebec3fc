// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
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
	definition := filepath.Join(t.TempDir(), g.Name+".xml")
	xml, err := h1.Libvirtd.Virsh(t.Context(), "dumpxml", "--inactive", "--security-info", g.Name)
	if err := errors.Join(err, os.WriteFile(definition, []byte(xml), 0o600)); err != nil {
		t.Fatal(err)
	}
	// libvirt says that it is unsafe.
	address, err := lab.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	virsh(t, h1, "migrate", "--live", "--persistent", "--undefinesource", "--unsafe", g.Name, h2.Libvirtd.URI(), "tcp://"+address)
	there := &guest{Guest: g.At(h2.Libvirtd.Connection), host: h2, disks: g.disks}
	there.write(t, "vdb")

	images := []string{m.Src.Path, m.Dst.Path, filepath.Join(h1.Overlays(), m.ID+".qcow2")}
	for _, word := range []string{"complete", "cancel"} {
		refuses(t, h1.Caller, api.CodeNeedsOperator, "migration", word, m.ID)
		there.write(t, "vdb")
		for _, image := range images {
			if _, err := os.Stat(image); err != nil {
				t.Error(err)
			}
		}
	}

	// It ends there, and its definition comes back, as the message says.
	there.quiesce(t, "vdb")
	virsh(t, h2, "destroy", g.Name)
	virsh(t, h2, "undefine", "--nvram", g.Name)
	virsh(t, h1, "define", definition)
	ctl(t, h1.Caller, "instance", "repair", g.Name)
	ctl(t, h1.Caller, "--progress", "none", "migration", "cancel", m.ID)
	if at := get[api.Volume](t, h1.Caller, "volume", "volume", "show", d.ID).Location; at != d.Location {
		t.Errorf("the volume is at %+v, want %+v", at, d.Location)
	}
	assertHolds(t, d, d.Location, g.History("vdb"))
}

// virsh runs virsh on a host, which must succeed.
func virsh(t *testing.T, h *site.Host, args ...string) {
	t.Helper()
	if _, err := h.Libvirtd.Virsh(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}
