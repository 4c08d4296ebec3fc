// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/test/lab"
)

// Each move has an NBD server at one end, and a device of the kernel's at the other.
func TestStorageARunningGuestMovesFromAnExportToEachKindAndBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(*host, *testing.T) lab.Disk
	}{
		{"at a socket", (*host).served},
		{"over TCP", func(h *host, t *testing.T) lab.Disk {
			t.Helper()
			d := h.servedOverTCP(t)
			h.listServers(t, d.Export)
			return d
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := storageHost(t)
			d := c.serve(h, t)
			g := h.runningGuest(t, d)
			move := func(t *testing.T, to string) {
				t.Helper()
				if m := g.migrate(t, "vda", "--yes", "--to-path", to); m.Method != "overlay" || m.Dst.Path != to {
					t.Errorf("the volume went to %s by %s", m.Dst.Path, m.Method)
				}
				g.assertSettledAndGoOn(t)
			}
			for _, kind := range round {
				goTo(t, kind+" and back", func(t *testing.T) {
					move(t, storageDevice(t, kind))
					move(t, d.Export.URI())
				})
			}
			g.assertSettled(t)
		})
	}
}
