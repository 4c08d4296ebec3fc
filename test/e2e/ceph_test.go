// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/beevik/etree"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/test/lab"
)

// clusters are the Ceph clusters of the tests, by their ids. What is read of their images is in
// files of a directory.
var clusters struct {
	sync.Mutex
	shared *lab.Ceph
	all    []*lab.Ceph
	dir    string
}

// newCluster starts a cluster in a directory.
func newCluster(t *testing.T, dir string) *lab.Ceph {
	t.Helper()
	c, err := lab.StartCeph(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	clusters.all = append(clusters.all, c)
	return c
}

// sharedCluster is a cluster for all tests that only make images.
func sharedCluster(t *testing.T) *lab.Ceph {
	t.Helper()
	clusters.Lock()
	defer clusters.Unlock()
	if clusters.shared == nil {
		dir, err := os.MkdirTemp("", "vfceph-") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		clusters.dir = dir
		clusters.shared = newCluster(t, dir)
	}
	return clusters.shared
}

// ownCluster is a cluster that a test may kill.
func ownCluster(t *testing.T) *lab.Ceph {
	t.Helper()
	clusters.Lock()
	defer clusters.Unlock()
	dir := t.TempDir()
	c := newCluster(t, dir)
	if clusters.dir == "" {
		clusters.dir = dir
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// closeCeph ends the shared cluster.
func closeCeph() error {
	if clusters.shared == nil {
		return nil
	}
	return errors.Join(clusters.shared.Close(), os.RemoveAll(clusters.dir))
}

// cephFile is a file with what an image has by now, or the name of one that is not there.
func cephFile(path string) string {
	image, err := medium.ParseRBD(path)
	if err != nil {
		return "/nonexistent/" + err.Error()
	}
	clusters.Lock()
	defer clusters.Unlock()
	for _, c := range clusters.all {
		if c.ID != image.Cluster {
			continue
		}
		// One file for each image: a test reads some dozens of times what an image has.
		file := filepath.Join(clusters.dir, "read-"+c.ID+"-"+url.PathEscape(image.Spec()))
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "/nonexistent/" + err.Error()
		}
		if err := c.Export(context.Background(), image.Spec(), file); err != nil {
			return "/nonexistent/" + err.Error()
		}
		return file
	}
	return "/nonexistent" + path
}

// cephURI is the address of an image that a domain names by a monitor.
func cephURI(spec string, host *etree.Element) string {
	clusters.Lock()
	defer clusters.Unlock()
	for _, c := range clusters.all {
		if host != nil && c.Monitor == host.SelectAttrValue("name", "")+":"+host.SelectAttrValue("port", "6789") {
			return c.URI(spec)
		}
	}
	return spec
}

// cephHost is a host that reaches a cluster.
func cephHost(t *testing.T, c *lab.Ceph) *host {
	t.Helper()
	h := startHost(t)
	if err := c.GiveSecret(t.Context(), h.Libvirtd.Connection); err != nil {
		t.Fatal(err)
	}
	h.configure(t, fmt.Sprintf("[rbd_clusters.%s]\nmonitors = [%q]\nuser = %q\nsecret = %q\n", c.ID, c.Monitor, lab.CephUser, c.Secret))
	t.Cleanup(func() { h.leavesNoSnapshots(t, c) })
	return h
}

// leavesNoSnapshots claims that no image of a test has a snapshot any more.
func (h *host) leavesNoSnapshots(t *testing.T, c *lab.Ceph) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, pool := range lab.CephPools {
		out, err := c.RBD(ctx, "ls", pool)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range strings.Fields(out) {
			if !strings.HasPrefix(name, filepath.Base(h.Dir)+"-") {
				continue // of a test beside this one
			}
			if left, err := c.Snapshots(ctx, pool+"/"+name); err != nil || len(left) > 0 {
				t.Errorf("image %s/%s has the snapshots %v (%v)", pool, name, left, err)
			}
		}
	}
}

// imageIn makes a filled volume of an RBD image, for a guest.
func (h *host) imageIn(t *testing.T, c *lab.Ceph) lab.Disk {
	t.Helper()
	d := h.diskIn(t, h.poolA, api.FormatRaw)
	image, err := c.Import(t.Context(), d.Path, "rbd/"+filepath.Base(h.Dir)+"-"+filepath.Base(d.Path))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.Path); err != nil {
		t.Fatal(err)
	}
	d.RBD, d.Path, d.SliceBytes = &image, image.URI(), volumeBytes
	return d
}

// emptyImage makes an image of the size of a volume, and returns its address.
func (h *host) emptyImage(t *testing.T, c *lab.Ceph, pool string) string {
	t.Helper()
	spec := fmt.Sprintf("%s/%s-to-%d", pool, filepath.Base(h.Dir), h.number())
	if _, err := c.RBD(t.Context(), "create", "--size", fmt.Sprint(volumeBytes)+"B", spec); err != nil {
		t.Fatal(err)
	}
	return c.URI(spec)
}

// requireCeph is the begin of a test with a Ceph cluster.
func requireCeph(t *testing.T) {
	t.Helper()
	leftToTestE2E(t)
	lab.RequireCeph(t)
}

func TestCephAVolumeIsMovedFromAndToRBDImagesWhileItsGuestIsStopped(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	g := h.runningGuest(t, d)
	at := g.volume(t, "vda").Location
	if want := (api.Location{Path: d.RBD.URI(), Format: api.FormatRaw, SizeBytes: volumeBytes}); !identifiedAt(at, want) {
		t.Fatalf("the volume was adopted at %+v, want %+v with an identity", at, want)
	}
	g.assertSettledAndGoOn(t)
	name := g.volumeName("vda")
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "resize", name, "--size", fmt.Sprint(2*volumeBytes))
	g.powerOff(t)
	h.refuses(t, api.CodeInvalidArgument, "volume", "migrate", name, "--to-pool", "b", "--delete-source")
	h.refuses(t, api.CodePermissionDenied, "volume", "migrate", name, "--to-path", "rbd://00000000-0000-0000-0000-000000000000/rbd/web")

	v := g.start(t, "vda", "--to-pool", "b", "--bandwidth", "1MiB/s")
	v.copyPartly(t)
	v.assertFrozen(t)
	v.cancel(t)
	if got := g.volume(t, "vda").Location; got != at {
		t.Errorf("after a cancel the volume is at %+v", got)
	}
	for n, to := range []string{h.emptyImage(t, c, "fast"), h.poolB + "/web.raw", h.emptyImage(t, c, "rbd"), h.served(t).Export.URI(), h.emptyImage(t, c, "fast")} {
		throughDeath := n < 2
		args := []string{"--to-path", to}
		if throughDeath {
			args = append(args, "--bandwidth", "4MiB/s")
		}
		v := g.start(t, "vda", args...)
		if throughDeath {
			v.copyThroughDeath(t)
		} else {
			v.copy(t)
		}
		v.finish(t)
		if v.Method != "overlay" || v.Dst.Path != to {
			t.Errorf("the volume went to %s by %s", v.Dst.Path, v.Method)
		}
		g.boot(t)
		g.powerOff(t)
		g.assertSettled(t)
	}
}

func TestCephAVolumeOfNoGuestGoesFromAnImageToADeviceAndBack(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	d := h.imageIn(t, c)
	get[api.Volume](t, h, "volume", "volume", "adopt", "data", "--path", d.Path, "--format", "raw")
	for _, to := range []string{h.device(t, h.poolB, volumeBytes).Path, h.emptyImage(t, c, "rbd"), h.emptyImage(t, c, "fast"), h.device(t, h.poolB, volumeBytes).Path} {
		h.migrateUnattached(t, d, "--to-path", to)
	}
}

// What holds the key: libvirtd, which keeps it, and the two programs beside the file that they are
// given.
func TestCephTheKeyIsInNoArgumentNoEnvironmentAndNoFile(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	g := h.stoppedGuest(t, h.imageIn(t, c))
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"), "--bandwidth", "8MiB/s")
	v.copyPartly(t)
	if n := len(h.servers(t)); n != 2 {
		t.Errorf("%d servers are at work in the copy, want 2", n)
	}
	for _, file := range glob(t, "/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ") {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is gone
		}
		if bytes.Contains(text, []byte(c.Key)) {
			t.Errorf("%s has the key: %q", file, text)
		}
	}
	v.copy(t)
	v.finish(t)
	err := filepath.WalkDir(h.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(h.Libvirtd.EtcDir, "secrets")) {
			return nil //nolint:nilerr // what is gone has no key
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(c.Key)) {
			t.Errorf("%s has the key", path)
		}
		return nil //nolint:nilerr // as above
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.Logs(), c.Key) {
		t.Error("a log has the key")
	}
	g.assertSettled(t)
}

// servers are the process numbers of what serves images of this host.
func (h *host) servers(t *testing.T) (pids []string) {
	t.Helper()
	for _, file := range glob(t, "/proc/[0-9]*/cmdline") {
		text, err := os.ReadFile(file)
		if err == nil && bytes.HasPrefix(text, []byte("qemu-storage-daemon")) && bytes.Contains(text, []byte(filepath.Base(h.Dir))) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// A packaged daemon has no network: the program beside it has the servers, which end with the
// daemon's connections.
func TestCephAProgramBesideTheDaemonServesTheImagesAndEndsThatWhenTheDaemonDies(t *testing.T) {
	requireCeph(t)
	activate, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("SKIPPED: there is no systemd-socket-activate on this machine")
	}
	c := sharedCluster(t)
	h := cephHost(t, c)
	socket := filepath.Join(h.Dir, "storage.sock")
	beside := exec.CommandContext(t.Context(), activate, "--seqpacket", "--listen="+socket, //nolint:gosec // of a test
		filepath.Join(programs(t), "volferryd"), "storage", "--config", filepath.Join(h.Dir, "volferryd.toml"))
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Wait() }) // by the end of the context
	eventually(t, "the socket is there", func() bool { return exists(t, socket) })
	restart := func() {
		h.KillDaemon()
		if err := h.StartDaemon(t.Context(), "VOLFERRYD_STORAGE="+socket); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	g := h.stoppedGuest(t, h.imageIn(t, c))
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	servers := h.servers(t)
	for _, pid := range servers {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err != nil || !strings.Contains(string(stat), fmt.Sprintf(" S %d ", beside.Process.Pid)) {
			t.Errorf("server %s is not a child of the program beside the daemon, %d: %s, %v", pid, beside.Process.Pid, stat, err)
		}
	}
	if len(servers) != 2 {
		t.Errorf("the servers are %v, want 2", servers)
	}
	h.KillDaemon()
	eventually(t, "the servers end", func() bool { return len(h.servers(t)) == 0 })
	restart()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.finish(t)
	g.boot(t)
	g.assertSettled(t)
}

func glob(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// An image that a guest of no host of ours writes to would be copied while it changes.
func TestCephAnImageThatAnotherClientHasOrThatIsAnotherOneIsNotTouched(t *testing.T) {
	requireCeph(t)
	c := sharedCluster(t)
	h := cephHost(t, c)
	other := h.imageIn(t, c)
	g := h.stoppedGuest(t, h.imageIn(t, c))
	name := g.volumeName("vda")
	writer := c.Hold(t, other.RBD.Spec)
	mustContain(t, h.refuses(t, api.CodeDstInUse, "volume", "migrate", name, "--to-path", other.Path, "--yes").Message, "rbd status")
	writer()

	to := h.emptyImage(t, c, "fast")
	v := g.start(t, "vda", "--to-path", to)
	spec := strings.TrimPrefix(to, c.URI(""))
	if _, err := c.RBD(t.Context(), "rm", "--no-progress", spec); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RBD(t.Context(), "create", "--size", fmt.Sprint(volumeBytes)+"B", spec); err != nil {
		t.Fatal(err)
	}
	h.fails(t, api.ExitOpFailed, api.CodeDstInUse, v.copyArgs()...)
	v.cancel(t)
	g.boot(t)
	g.assertSettled(t)
}

// Ceph itself would wait for ever.
func TestCephACopyGoesOnWhenTheClusterIsBack(t *testing.T) {
	requireCeph(t)
	c := ownCluster(t)
	h := cephHost(t, c)
	g := h.stoppedGuest(t, h.imageIn(t, c))
	v := g.start(t, "vda", "--to-path", h.emptyImage(t, c, "fast"), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	if err := errors.Join(c.KillOSD(), c.KillMon()); err != nil {
		t.Fatal(err)
	}
	h.fails(t, api.ExitOpFailed, api.CodeIOError, "migration", "watch", v.ID)
	h.mustFail(t, v.copyArgs()...)
	if err := errors.Join(c.StartMon(), c.StartOSD()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RBD(t.Context(), "info", g.disks[0].RBD.Spec); err != nil { // which waits for them
		t.Fatal(err)
	}
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.finish(t)
	g.boot(t)
	g.assertSettled(t)
}
