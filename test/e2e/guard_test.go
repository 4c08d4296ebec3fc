// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The ways on which an instance without its root volume might be started, by people
// and by libvirt, while volferryd is down. The hook alone is in them.

func TestNobodyStartsAnInstanceWithoutItsRootWhileTheDaemonIsDown(t *testing.T) {
	h := startHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	before := g.rootVolume(t)
	g.detachRoot(t, before)
	h.KillDaemon()

	t.Run("virsh start", g.refusedByTheHook)
	t.Run("autostart", func(t *testing.T) { g.refusedAtBoot(t) })
	t.Run("its definition has a root again", func(t *testing.T) {
		h.virsh(t, "attach-disk", g.Name, before.disk.Path, "vda", "--config", "--targetbus", "virtio", "--driver", "qemu", "--subdriver", before.disk.Format)
		g.refusedByTheHook(t)
		g.refusedAtBoot(t)
		h.virsh(t, "detach-disk", g.Name, "vda", "--config")
	})
	g.hasItsRootBack(t, before)
}

// What libvirt restores is the instance of before, which had its root.
func TestNobodyRestoresAnInstanceWithoutItsRootWhileTheDaemonIsDown(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	before := g.rootVolume(t)
	saved := g.savedBefore(t)
	g.detachRoot(t, before)
	h.KillDaemon()

	t.Run("virsh restore", func(t *testing.T) {
		_, err := h.Libvirtd.Virsh(t.Context(), "restore", saved)
		g.wasRefused(t, err)
	})
	t.Run("managed save", func(t *testing.T) {
		g.putManagedSave(t, saved)
		g.refusedByTheHook(t)
		g.refusedAtBoot(t)
		h.virsh(t, "managedsave-remove", g.Name)
	})
	g.hasItsRootBack(t, before)
}

// hasItsRootBack starts the daemon and claims that the instance is as good as before
// once it has its root.
func (g *guest) hasItsRootBack(t *testing.T, root *volume) {
	t.Helper()
	if err := g.host.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	root.assertUntouched(t)
	g.attachRoot(t, root)
	g.runsOn(t, root)
	g.assertSettled(t)
}

// wasRefused claims of what somebody tried that the hook was in the way and said why.
func (g *guest) wasRefused(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), withoutRoot) {
		t.Errorf("it was let go, or is not told why: %v", err)
	}
	if state := g.state(t); state != "shut off" {
		t.Errorf("the guest is %s", state)
	}
}

// refusedAtBoot claims that the host does not start the guest when it boots, and that
// libvirt's log says why. Another guest shows that it starts those that it may.
func (g *guest) refusedAtBoot(t *testing.T) {
	t.Helper()
	h := g.host
	free := h.defineGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	free.settled = true // nobody writes to it
	for _, one := range []*guest{g, free} {
		h.virsh(t, "autostart", one.Name)
	}
	log := h.libvirtBoots(t)
	eventually(t, "the other guest was started", func() bool { return free.state(t) == "running" })
	eventually(t, "this one was tried", func() bool { return strings.Contains(log(), "'"+g.Name+"'") })
	if said := log(); !strings.Contains(said, withoutRoot) {
		t.Errorf("libvirt does not say why the guest was not started: %s", said)
	}
	if state := g.state(t); state != "shut off" {
		t.Errorf("the guest is %s", state)
	}
	h.virsh(t, "autostart", "--disable", g.Name)
	free.destroy(t)
}

// libvirtBoots has libvirtd begin anew as at a boot of the host, when no guest runs.
// What is returned reads what it has logged since.
func (h *host) libvirtBoots(t *testing.T) (log func() string) {
	t.Helper()
	if err := h.Libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
	return h.startsLibvirtd(t)
}

// startsLibvirtd is libvirtBoots when libvirtd is dead.
func (h *host) startsLibvirtd(t *testing.T) (log func() string) {
	t.Helper()
	// libvirt keeps here that it has started what is to be started at a boot, and what runs. A
	// boot begins with nothing there.
	for _, name := range []string{"autostarted", "*.xml", "*.pid"} {
		files, err := filepath.Glob(filepath.Join(h.Libvirtd.RunDir, "qemu", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	log = logSince(t, filepath.Join(h.Libvirtd.Dir, "log", "libvirtd.log"))
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return log
}

// logSince reads what has been written to a log from now on.
func logSince(t *testing.T, path string) (log func() string) {
	t.Helper()
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := len(read())
	return func() string { return read()[before:] }
}

// managedSave is where libvirt keeps the managed save image of a guest.
func (g *guest) managedSave() string {
	return filepath.Join(g.host.Libvirtd.StateDir(), "save", g.Name+".save")
}

// savedBefore starts the guest and has libvirt save it to a file, which is of the same
// kind as a managed save image.
func (g *guest) savedBefore(t *testing.T) (path string) {
	t.Helper()
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(lab.TempDir(t), "saved")
	g.host.virsh(t, "save", g.Name, path)
	return path
}

// putManagedSave makes a file the guest's managed save image again.
func (g *guest) putManagedSave(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.managedSave(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.host.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustContain(t, g.host.virsh(t, "dominfo", g.Name), "Managed save:   yes")
}
