// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

const socketSuffix = ".sock"

// served makes a filled volume that a guest has from an NBD server of QEMU's.
func (h *host) served(t *testing.T) lab.Disk {
	t.Helper()
	return h.servedAs(t, func(file string) (*lab.Export, error) { return lab.Serve(t.Context(), file, "web", file+socketSuffix) })
}

// servedAs is served, as serve serves the file.
func (h *host) servedAs(t *testing.T, serve func(file string) (*lab.Export, error)) lab.Disk {
	t.Helper()
	dir := filepath.Join(h.Dir, fmt.Sprintf("nbd-%d", h.number()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := h.diskIn(t, dir, api.FormatRaw)
	export, err := serve(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := export.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d.Export = export
	return d
}

// servedOverTCP is served over TCP, at a server that is to be listed.
func (h *host) servedOverTCP(t *testing.T) lab.Disk {
	t.Helper()
	d := h.servedAs(t, func(file string) (*lab.Export, error) {
		return lab.ServeTCP(t.Context(), file, "web", freeAddress(t))
	})
	remoteFiles.Store(d.Export.URI(), d.Export.File)
	return d
}

// listServers has the daemon begin anew with the servers of these exports on its list.
func (h *host) listServers(t *testing.T, exports ...*lab.Export) {
	t.Helper()
	servers := make([]string, len(exports))
	for i, e := range exports {
		servers[i] = e.Server
	}
	h.StopDaemon()
	if err := site.AllowNBDServers(servers...); err != nil {
		t.Fatal(err)
	}
	h.Flags = append(h.Flags, "--nbd-servers", strings.Join(servers, ","))
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// remoteFiles are the files of exports over TCP.
var remoteFiles sync.Map

// fileOf is what the server of an export has its bytes in, a file with what an RBD image has by
// now, and every other path itself.
func fileOf(path string) string {
	if _, err := medium.ParseRBD(path); err == nil {
		return cephFile(path)
	}
	if known, _ := remoteFiles.Load(path); known != nil {
		file, _ := known.(string)
		return file
	}
	if e, err := medium.ParseNBD(path); err == nil {
		return strings.TrimSuffix(e.Socket, socketSuffix)
	}
	return path
}

func TestAVolumeAtAnExportIsMovedWhileItsGuestIsStopped(t *testing.T) {
	leftToTestE2E(t)
	h, _, _ := sharedPools(t)
	d := h.served(t)
	g := h.runningGuest(t, d)
	at := g.volume(t, "vda").Location
	if want := (api.Location{Path: d.Export.URI(), Format: api.FormatRaw, SizeBytes: volumeBytes}); at != want {
		t.Fatalf("the volume was adopted at %+v, want %+v", at, want)
	}
	g.assertSettledAndGoOn(t)
	name := g.volumeName("vda")
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", name, "--to-pool", "b", "--method", "mirror")
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "resize", name, "--size", fmt.Sprint(2*volumeBytes))
	g.powerOff(t)
	h.refuses(t, api.CodeInvalidArgument, "volume", "migrate", name, "--to-pool", "b", "--delete-source")

	// To a file, to an export, to another one, and to a file of another format.
	for _, to := range []string{h.poolB + "/web.raw", h.served(t).Export.URI(), h.served(t).Export.URI(), h.poolA + "/web.qcow2"} {
		format := api.FormatRaw
		if strings.HasSuffix(to, ".qcow2") {
			format = api.FormatQcow2
		}
		v := g.start(t, "vda", "--to-path", to, "--to-format", string(format))
		v.copy(t)
		v.finish(t)
		if v.Method != "overlay" || v.Dst.Path != to {
			t.Errorf("the volume went to %s by %s", v.Dst.Path, v.Method)
		}
		g.boot(t)
		g.powerOff(t)
		g.assertSettled(t)
	}
}

func TestACancelLeavesAVolumeAtItsExport(t *testing.T) {
	h, _, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.served(t))
	before := g.volume(t, "vda").Location
	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "1MiB/s")
	v.copyPartly(t)
	v.assertFrozen(t)
	v.cancel(t)
	if got := g.volume(t, "vda").Location; got != before || exists(t, v.Dst.Path) {
		t.Errorf("the volume is at %+v, and the destination is there: %v", got, exists(t, v.Dst.Path))
	}
	g.boot(t)
	g.assertSettled(t)
}

func TestACopyOfAnExportOutlivesTheDaemon(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.runningGuest(t, h.served(t))
	g.powerOff(t)
	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "4MiB/s")
	v.copyThroughDeath(t)
	v.finish(t)
	g.boot(t)
	g.assertSettled(t)
}

func TestAVolumeOfNoGuestLeavesItsExport(t *testing.T) {
	h, a, _ := sharedPools(t)
	d := h.served(t)
	get[api.Volume](t, h, "volume", "volume", "adopt", "data", "--path", d.Export.URI(), "--format", "raw")
	device := h.device(t, a, volumeBytes)
	if m := h.migrateUnattached(t, d, "--to-path", device.Path); m.Src.Path != d.Export.URI() {
		t.Errorf("the volume was at %s", m.Src.Path)
	}
	h.ctl(t, "volume", "delete", "data", "--yes")
}

func TestAVolumeAtAServerOverTCPIsMovedInEveryDirection(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	src, other := h.servedOverTCP(t), h.servedOverTCP(t)
	h.refuses(t, api.CodePermissionDenied, "volume", "adopt", "early", "--path", src.Export.URI(), "--format", "raw")
	h.listServers(t, src.Export, other.Export)
	g := h.runningGuest(t, src)
	at := g.volume(t, "vda").Location
	if want := (api.Location{Path: src.Export.URI(), Format: api.FormatRaw, SizeBytes: volumeBytes}); at != want {
		t.Fatalf("the volume was adopted at %+v, want %+v", at, want)
	}
	h.refuses(t, api.CodePermissionDenied, "volume", "migrate", g.volumeName("vda"), "--to-path", "nbd://127.0.0.1:1/web")

	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "1MiB/s")
	v.copyPartly(t)
	v.assertFrozen(t)
	v.cancel(t)
	if got := g.volume(t, "vda").Location; got != at {
		t.Errorf("after a cancel the volume is at %+v", got)
	}
	// Under the guest, which runs, and with it stopped.
	for n, to := range []string{other.Export.URI(), src.Export.URI() /* which it has left */, h.served(t).Export.URI(), other.Export.URI(), h.poolB + "/web.raw"} {
		v := g.start(t, "vda", "--to-path", to, "--yes", "--bandwidth", "4MiB/s")
		if n == 0 {
			v.copyThroughDeath(t)
		} else {
			h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
			v.copy(t)
		}
		stopped := n%2 == 1
		if stopped {
			g.powerOff(t)
		}
		v.finish(t)
		if v.Method != "overlay" || v.Dst.Path != to {
			t.Errorf("the volume went to %s by %s", v.Dst.Path, v.Method)
		}
		if stopped {
			g.boot(t)
		}
		g.assertSettledAndGoOn(t)
	}
	g.powerOff(t)
	g.assertSettled(t)
}
