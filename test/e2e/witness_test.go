// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// libvirtd that dies inside a call, after QEMU has acted and before it has written
// its own status. Nothing but a real one shows that it never looks again.

// flushTime is how long slowFlush makes each flush of QEMU take: longer than a slow machine needs
// to notice one. openedFor is how long QEMU has the overlay open before it certainly flushes src.
const (
	flushTime = 2 * time.Minute
	openedFor = 2 * time.Second
)

var slowFlush = []string{"-e", "trace=fdatasync,fsync", "-e", fmt.Sprintf("inject=fdatasync,fsync:delay_enter=%d", flushTime.Microseconds())}

// diesInTheSnapshot begins a migration of a running guest in which libvirtd dies: QEMU has
// the guest on the overlay, and libvirt shows it on src.
func diesInTheSnapshot(t *testing.T) (g *guest, m api.Migration, overlay string) {
	t.Helper()
	h, a, _ := sharedPools(t)
	g = h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	src := g.volume(t, "vda").Location
	stop := lab.Inject(t, g.pid(t), slowFlush...)
	started := g.inBackground(t, "--progress", "none", "migration", "start", g.attachment(t, "vda").ID, "--to-pool", "b")
	opened := time.Time{}
	eventually(t, "QEMU flushes src, with the overlay open", func() bool {
		for _, m := range get[[]api.Migration](t, h, "migrations", "migration", "list") {
			if m.VolumeID == g.volume(t, "vda").ID {
				overlay = filepath.Join(h.Overlays(), m.ID+".qcow2")
			}
		}
		if overlay == "" || !slices.Contains(g.openModes(t, overlay), "write") {
			return false
		}
		if opened.IsZero() {
			opened = time.Now()
		}
		// It opens the overlay before it is told to use it, which it is at once.
		return time.Since(opened) > openedFor
	})
	if err := h.Libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
	stop() // the flush ends, and QEMU switches
	eventually(t, "QEMU has src open for reading only", func() bool { return slices.Equal(g.openModes(t, src.Path), []string{"read"}) })
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err == nil {
		t.Error("start succeeded though libvirt has the guest on src")
	}
	m = g.migrationIn(t, api.MigrationNeedsOperator)
	mustContain(t, m.Error.Message, "by the kernel's word", "start it again", m.ID)
	if !exists(t, overlay) || slices.ContainsFunc(g.openImages(t), func(image string) bool { return image == overlay+" (deleted)" }) {
		t.Fatal("the overlay was deleted under the guest")
	}
	return g, m, overlay
}

func TestLibvirtdThatDiesInTheSnapshotCostsTheGuestNothing(t *testing.T) {
	leftToTestE2E(t)
	g, m, _ := diesInTheSnapshot(t)
	h, src := g.host, m.Src
	g.writes(t)
	g.quiesce(t)
	// Whoever saves it now would have it restored on src: the guard is there.
	eventually(t, "the guard is there", func() bool {
		return h.chainPart(t).Status == "fail"
	})
	g.destroy(t)
	eventually(t, "the instance may start again", func() bool { return h.chainPart(t).Status == "ok" })
	g.boot(t)
	h.ctl(t, "migration", "cancel", m.SrcAttachmentID)
	if at := g.volume(t, "vda").Location.Path; at != src.Path {
		t.Errorf("the volume is at %s, want src", at)
	}
	g.assertSettled(t)
}

var savedCommands = regexp.MustCompile("(?s)### Without a shutdown.*?```sh\n(.*?)```.*?```sh\n(.*?)```")

// What docs/how-to/recover.md says of a guest that may not be shut down: its memory is
// saved with the chain that it has, and restored on that.
func TestAGuestThatLibvirtHasOnTheWrongChainIsCuredBySaveAndRestore(t *testing.T) {
	leftToTestE2E(t)
	for name, save := range map[string]func(h *host, t *testing.T, guest, saved, xml string){
		"saved with the right chain": func(h *host, t *testing.T, guest, saved, xml string) {
			h.virsh(t, "save", guest, saved, "--xml", xml)
		},
		"mended before the restore": func(h *host, t *testing.T, guest, saved, xml string) {
			h.virsh(t, "save", guest, saved)
			h.virsh(t, "save-image-define", saved, xml)
		},
	} {
		t.Run(name, func(t *testing.T) { curedBySaveAndRestore(t, save) })
	}
}

func curedBySaveAndRestore(t *testing.T, save func(h *host, t *testing.T, guest, saved, xml string)) {
	t.Helper()
	g, m, overlay := diesInTheSnapshot(t)
	h := g.host
	g.writes(t)
	dir := lab.TempDir(t)
	xml, saved := filepath.Join(dir, "g.new.xml"), filepath.Join(dir, "g.saved")
	steps := recoverCommands(t, savedCommands)
	h.types(t, dir, strings.ReplaceAll(steps[1], " G ", " "+g.Name+" "))
	h.types(t, dir, strings.Replace(steps[2], "diff g.xml g.new.xml", "diff g.xml g.new.xml || true", 1)) // they differ
	was := h.virsh(t, "dumpxml", g.Name, "--migratable", "--security-info")
	right := diskVDA(t, h.virsh(t, "dumpxml", g.Name, "--inactive", "--security-info"))
	mustContain(t, right, overlay, m.Src.Path)
	if got, err := os.ReadFile(xml); err != nil || string(got) != strings.Replace(was, diskVDA(t, was), right, 1) {
		t.Fatalf("%v, and the commands of recover.md have made\n%s", err, got)
	}
	save(h, t, g.Name, saved, xml)
	mustContain(t, h.virsh(t, "save-image-dumpxml", saved), overlay)
	eventually(t, "the instance may start again", func() bool { return h.chainPart(t).Status == "ok" })
	h.virsh(t, "restore", saved)
	g.writes(t)
	if modes := g.openModes(t, overlay); !slices.Contains(modes, "write") {
		t.Fatalf("the guest has its overlay open for %v", modes)
	}
	if modes := g.openModes(t, m.Src.Path); slices.Contains(modes, "write") {
		t.Fatalf("the guest has src open for %v", modes)
	}
	mustContain(t, diskVDA(t, h.virsh(t, "dumpxml", g.Name)), overlay)
	h.ctl(t, "migration", "cancel", m.SrcAttachmentID)
	if at := g.volume(t, "vda").Location.Path; at != m.Src.Path {
		t.Errorf("the volume is at %s, want src", at)
	}
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

var diskElement = regexp.MustCompile(`(?s)<disk .*?</disk>`)

// diskVDA is the element of the first disk in a definition.
func diskVDA(t *testing.T, xml string) string {
	t.Helper()
	for _, disk := range diskElement.FindAllString(xml, -1) {
		if strings.Contains(disk, "<target dev='vda'") {
			return disk
		}
	}
	t.Fatalf("no disk vda in\n%s", xml)
	return ""
}

func TestLibvirtdThatDiesInAnAttachLeavesTheVolumeReserved(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	stop := lab.Inject(t, h.Libvirtd.PID(), "-P", fmt.Sprintf("/run/libvirt/qemu/%s.xml.new", g.Name),
		"-e", "trace=rename,renameat,renameat2", "-e", "inject=rename,renameat,renameat2:signal=SIGKILL:when=1")
	attached := g.inBackground(t, "-o", "json", "--progress", "none", "volume", "attach", v.name, g.Name)
	eventually(t, "libvirtd is dead", func() bool { return !h.Libvirtd.Running() })
	stop()
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if modes := g.openModes(t, v.disk.Path); !slices.Contains(modes, "write") {
		t.Skipf("SKIPPED: libvirtd died before QEMU had the disk (%v)", modes)
	}
	mustHaveFailed(t, <-attached, api.ExitNeedsOperator, api.CodeChainChanged)
	if got := v.show(t); got.Status == api.VolumeAvailable || len(got.Attachments) != 1 {
		t.Fatalf("the guest has the volume open, and the registry has it as %s", got.Status)
	}
	at := v.show(t).Attachments[0]
	p := &plugged{volume: v, guest: g, mode: at.Mode, dev: at.Device}
	g.destroy(t)
	g.plugged = append(g.plugged, p)
	g.boot(t)
	h.refuses(t, api.CodeConflict, "volume", "attach", v.name, g.Name) // it looks again, and is
	g.slots = g.persistentSlots(t)
	p.assertAttached(t)
	p.writes(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	g.assertSettled(t)
}

// migrationIn waits until the newest migration of the guest's first disk is in a state.
func (g *guest) migrationIn(t *testing.T, state api.MigrationState) (m api.Migration) {
	t.Helper()
	eventually(t, "the migration is "+string(state), func() bool {
		for _, m = range get[[]api.Migration](t, g.host, "migrations", "migration", "list") {
			if m.InstanceID == g.UUID && m.State == state {
				return true
			}
		}
		return false
	})
	return m
}

// chainPart is what status says of the chains of this host's guests.
func (h *host) chainPart(t *testing.T) api.Check {
	t.Helper()
	for _, p := range get[api.Status](t, h, "status", "status").Parts {
		if p.Name == "chains" {
			return p
		}
	}
	t.Fatal("status says nothing of chains")
	return api.Check{}
}
