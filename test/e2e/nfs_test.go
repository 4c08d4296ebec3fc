// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// isOnNFS is whether a path is on an export that the machine with storage has mounted.
func isOnNFS(path string) bool {
	for _, variable := range []string{"EXPORT", "SQUASHED", "GIVEN"} {
		if dir := os.Getenv(variable); dir != "" && strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// hostThatMayUse starts a host whose volumes may be in these directories too.
func hostThatMayUse(t *testing.T, dirs ...string) *host {
	t.Helper()
	h := startHost(t)
	h.Flags = []string{"--allowed-paths", strings.Join(append(dirs, h.Dir, "/dev"), ":")}
	h.restartDaemon(t)
	h.virsh(t, "capabilities") // libvirtd asks QEMU for them at its first call, which takes long where the machine is emulated
	return h
}

// nfsServerIsAway ends the machine's NFS server, so that whoever asks it waits, until what it
// returns is called.
func nfsServerIsAway(t *testing.T) (comesBack func()) {
	t.Helper()
	threads := func(args ...string) {
		if out, err := exec.Command("rpc.nfsd", args...).CombinedOutput(); err != nil { //nolint:noctx // also when the test has ended
			t.Errorf("rpc.nfsd %v: %v: %s", args, err, out)
		}
	}
	threads("0")
	away := true
	comesBack = func() {
		if away {
			away = false
			threads("--no-nfs-version", "3", "4")
		}
	}
	t.Cleanup(comesBack)
	return comesBack
}

// answersInTime claims that the daemon is there for the rest of its host while a filesystem does
// not answer.
func (h *host) answersInTime(t *testing.T) {
	t.Helper()
	begin := time.Now()
	h.ctl(t, "volume", "list")
	h.ctl(t, "migration", "list")
	h.ctl(t, "status")
	// The machine is emulated: two of these commands take it some seconds when all is well.
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("volferryd took %v for three lists", took)
	}
}

func TestStorageAGuestMovesToNFSAndAwayThoughItsServerGoesAwayAndComesBack(t *testing.T) {
	export := storageDevice(t, "EXPORT")
	h := hostThatMayUse(t, export)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))

	v := g.start(t, "vda", "--to-path", filepath.Join(export, "first.raw"))
	v.copy(t)
	v.cancel(t)
	t.Log("cancelled")

	v = g.start(t, "vda", "--to-path", filepath.Join(export, "second.raw"), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	comesBack := nfsServerIsAway(t)
	g.writes(t) // to its overlay, which is here
	h.answersInTime(t)
	// The kernel lets go of the locks that it had at the server before it lets it end, so nobody
	// waits for that here.
	if err := syscall.Kill(h.DaemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.writes(t)
	comesBack()
	if err := h.DaemonDied(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.finish(t)
	g.writes(t)
	t.Log("moved there, by a daemon that was killed in the copy while the server was away")

	comesBack = nfsServerIsAway(t)
	h.answersInTime(t)
	comesBack()
	g.writes(t)
	t.Log("the guest goes on when the server is back")

	v = g.start(t, "vda", "--to-path", filepath.Join(export, "third.qcow2"), "--to-format", "qcow2")
	v.copy(t)
	v.finish(t)
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}

func TestStorageAStoppedGuestMovesToNFSAndAway(t *testing.T) {
	export := storageDevice(t, "EXPORT")
	h := hostThatMayUse(t, export)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	g.writes(t)
	g.powerOff(t)
	g.migrate(t, "vda", "--to-path", filepath.Join(export, "cold.raw"))
	v := g.start(t, "vda", "--to-pool", "b")
	g.boot(t)
	g.writes(t)
	g.powerOff(t)
	v.copy(t)
	v.finish(t)
	g.assertSettled(t)
}

// Where root is nobody, neither libvirt nor volferryd can give QEMU an image that root has made.
// That shows when it is made, before the guest is on its overlay.
func TestStorageAnExportWhereRootIsNobodyIsRefusedBeforeTheGuestIsTouched(t *testing.T) {
	dir, given := storageDevice(t, "SQUASHED"), storageDevice(t, "GIVEN")
	h := hostThatMayUse(t, dir, given)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	e := g.failsToMove(t, "vda", api.ExitOpFailed, api.CodePermissionDenied, "--to-path", filepath.Join(dir, "vda.raw"))
	if !strings.Contains(e.Message, "root_squash") {
		t.Errorf("the refusal does not say why: %s", e.Message)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the refusal has left %v (%v)", left, err)
	}
	g.writes(t)
	g.assertSettledAndGoOn(t)

	v := g.start(t, "vda", "--to-path", filepath.Join(given, "vda.raw"))
	v.copy(t)
	v.finish(t)
	t.Log("where everybody is QEMU's user it moves")
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}
