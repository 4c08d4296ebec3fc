// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// What is at an address and larger than the volume that comes to it: a server that exports a
// logical volume in whole extents, or an RBD image that was made larger beforehand.

// servedLarger is the address of an export that is larger than the volumes, and has somebody's
// bytes at its end.
func (h *host) servedLarger(t *testing.T) string {
	t.Helper()
	d := h.servedAs(t, func(file string) (*lab.Export, error) {
		tool(t, "truncate", "--size", fmt.Sprint(int64(largerDeviceBytes)), file)
		putEnd(t, file)
		return lab.Serve(t.Context(), file, "web", file+socketSuffix)
	})
	return d.Export.URI()
}

// largerImage is the address of an RBD image like that.
func (h *host) largerImage(t *testing.T, c *lab.Ceph, pool string) string {
	t.Helper()
	spec := fmt.Sprintf("%s/%s-larger-%d", pool, filepath.Base(h.Dir), h.number())
	file := filepath.Join(t.TempDir(), "larger")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "truncate", "--size", fmt.Sprint(int64(largerDeviceBytes)), file)
	putEnd(t, file)
	if _, err := c.Import(t.Context(), file, spec); err != nil {
		t.Fatal(err)
	}
	return c.URI(spec)
}

// goesToBeginnings moves the disk of a guest that runs to the beginning of what is at one address,
// and from there to that of what is at another one: back by a cancel, and over, by QEMU and without
// it. In the end the volume is a file.
func (g *guest) goesToBeginnings(t *testing.T, a, b string) {
	t.Helper()
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", a), a, largerDeviceBytes)
	g.assertSettledAndGoOn(t)
	at := g.volume(t, "vda").Location

	v := g.start(t, "vda", "--to-path", b)
	g.writes(t)
	v.copy(t)
	v.cancel(t)
	g.assertSettledAndGoOn(t)
	v = g.start(t, "vda", "--to-path", b)
	g.writes(t)
	g.powerOff(t)
	v.cancel(t)
	g.assertSettled(t)
	if now := g.volume(t, "vda").Location; now != at {
		t.Errorf("after the cancels the volume is at %+v, want %+v", now, at)
	}
	endIsLeft(t, a)

	g.host.ctl(t, "instance", "forget", g.Name, "--force")
	g.host.ctl(t, "volume", "forget", g.volumeName("vda"))
	g.adopt(t)
	if now := g.volume(t, "vda").Location; now != at {
		t.Errorf("the volume was adopted at %+v, want %+v", now, at)
	}

	g.boot(t)
	v = g.start(t, "vda", "--to-path", b)
	g.writes(t)
	v.copy(t)
	g.powerOff(t)
	v.finish(t)
	isBeginningOf(t, v.Migration, b, largerDeviceBytes)
	g.assertSettled(t)
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", a, "--yes"), a, largerDeviceBytes)
	g.boot(t)
	g.migrate(t, "vda", "--to-pool", "b")
	endIsLeft(t, a)
	g.powerOff(t)
	g.assertSettled(t)
}

// goesToBeginning moves a volume that no instance has to the beginning of what is at an address,
// and on from there.
func (h *host) goesToBeginning(t *testing.T, d lab.Disk, address string) {
	t.Helper()
	h.ctl(t, "volume", "adopt", "data", "--path", d.Path, "--format", d.Format)
	isBeginningOf(t, h.migrateUnattached(t, d, "--to-path", address), address, largerDeviceBytes)
	h.migrateUnattached(t, d, "--to-pool", "b")
	endIsLeft(t, address)
	h.ctl(t, "volume", "delete", "data", "--yes")
}

func TestAGuestIsMovedToTheBeginningOfAnExportAndOnFromThere(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	h.runningGuest(t, h.diskIn(t, a, api.FormatRaw)).goesToBeginnings(t, h.servedLarger(t), h.servedLarger(t))
}

func TestAVolumeOfNoInstanceIsMovedToTheBeginningOfAnExportAndOnFromThere(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	h.goesToBeginning(t, h.diskIn(t, a, api.FormatRaw), h.servedLarger(t))
}

func TestCephAGuestIsMovedToTheBeginningOfAnImageAndOnFromThere(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw)).goesToBeginnings(t, h.largerImage(t, c, "rbd"), h.largerImage(t, c, "fast"))
}

func TestCephAVolumeOfNoInstanceIsMovedToTheBeginningOfAnImageAndOnFromThere(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	h.goesToBeginning(t, h.diskIn(t, h.poolA, api.FormatRaw), h.largerImage(t, c, "fast"))
}
