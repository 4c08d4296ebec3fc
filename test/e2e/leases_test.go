// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// startLeasingHost starts a host whose libvirt has the lock manager lockd, with leases on the
// images themselves.
func startLeasingHost(t *testing.T) *host {
	t.Helper()
	requireParallel(t)
	dir := tempDirOf(t)
	if err := lab.UseLockManager(filepath.Join(dir, "virt"), ""); err != nil {
		t.Fatal(err)
	}
	return startHostIn(t, dir)
}

// assertLeases claims that virtlockd has the leases of the images that guests write to, and no
// other: another host can take the lease of each other image, and of none of these.
func (h *host) assertLeases(t *testing.T, guests ...*guest) {
	t.Helper()
	var tops []string
	for _, g := range guests {
		if state := g.state(t); state != "running" {
			t.Errorf("guest %s is %s", g.Name, state)
		}
		for line := range strings.Lines(h.virsh(t, "domblklist", "--details", g.Name)) {
			if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "file" && fields[1] == "disk" {
				tops = append(tops, fields[3])
			}
		}
	}
	var images []string
	for _, dir := range []string{h.poolA, h.poolB, h.Overlays()} {
		found, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, found...)
	}
	for _, top := range tops {
		if !slices.Contains(images, top) {
			t.Errorf("%s is in use, and in none of the directories", top)
		}
	}
	for _, image := range images {
		if info, err := os.Stat(image); err != nil || !info.Mode().IsRegular() {
			continue
		}
		leased, err := h.Libvirtd.Leased(image)
		if err != nil {
			t.Fatal(err)
		}
		if used := slices.Contains(tops, image); leased != used {
			t.Errorf("that %s is in use is %v, and that virtlockd has its lease is %v", image, used, leased)
		}
		end, taken, err := lab.TakeLease(image)
		if err != nil {
			t.Fatal(err)
		}
		if taken == leased {
			t.Errorf("that virtlockd has the lease of %s is %v, and that another host can take it as well", image, leased)
		}
		if taken {
			if err := end(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAGuestHasTheLeasesOfItsImagesAfterEachSwitch(t *testing.T) {
	h := startLeasingHost(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	h.assertLeases(t, g)
	to := func() string { return otherPool(g.volume(t, "vda")) }
	for _, way := range []struct {
		name string
		move func(t *testing.T)
		long bool
	}{
		{"complete", func(t *testing.T) { g.migrate(t, "vda", "--to-pool", to()) }, false},
		{"cancel", func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", to())
			g.writes(t)
			h.assertLeases(t, g)
			v.copy(t)
			v.cancel(t)
		}, false},
		{"complete to qcow2", func(t *testing.T) { g.migrate(t, "vda", "--to-pool", to(), "--to-format", "qcow2") }, true},
		{"complete back to raw", func(t *testing.T) { g.migrate(t, "vda", "--to-pool", to(), "--to-format", "raw") }, true},
		{"mirror", func(t *testing.T) { g.mirror(t, "--to-pool", to()) }, true},
		{"cancel of a mirror", func(t *testing.T) {
			g.mirrorPartly(t, "--to-pool", to())
			h.ctl(t, "migration", "cancel", g.volume(t, "vda").Attachments[0].ID)
		}, true},
		{"cancel of a fold", func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", to(), "--bandwidth", slowFold)
			g.writes(t)
			v.copy(t)
			h.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
			v.untilFolding(t)
			v.cancel(t)
		}, true},
		{"resize", func(t *testing.T) {
			g.grown += 1 << 20
			h.ctl(t, resizeArgs(g.volumeName("vda"), volumeBytes+g.grown)...)
			g.sees(t, volumeBytes+g.grown)
		}, true},
		{"complete of a guest that its owner has suspended", func(t *testing.T) {
			h.virsh(t, "suspend", g.Name)
			g.migrate(t, "vda", "--to-pool", to())
			h.virsh(t, "resume", g.Name)
		}, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			if way.long {
				leftToTestE2E(t)
			}
			way.move(t)
			g.writes(t)
			h.assertLeases(t, g)
		})
	}
	g.assertSettled(t)
}

func TestGuestsThatShareAVolumeHaveItsLeaseAfterItMoves(t *testing.T) {
	leftToTestE2E(t)
	h := startLeasingHost(t)
	s := startSharers(t, h)
	guests := []*guest{s.both[0].guest, s.both[1].guest}
	h.assertLeases(t, guests...)
	s.movesEachWay(t, func(t *testing.T) { h.assertLeases(t, guests...) })
	s.end(t)
}

// Another host has taken the lease of an image of a guest that a switch has paused: the guest is
// named, and goes on by itself.
func TestAGuestWhoseLeaseAnotherHostTakesInASwitchGoesOnWhenThatEnds(t *testing.T) {
	leftToTestE2E(t)
	h := startLeasingHost(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	v.copy(t)
	// What libvirt drops as the guest is suspended.
	other := g.volume(t, "vdb").Location.Path
	got := make(chan func() error)
	go func() {
		for t.Context().Err() == nil {
			if end, taken, err := lab.TakeLease(other); err != nil || taken {
				got <- end
				return
			}
		}
	}()
	h.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
	end := <-got
	eventually(t, "the guest is shown as not resumed", func() bool {
		return get[api.Migration](t, h, "migration", "migration", "show", v.ID).GuestNotResumed != ""
	})
	for _, args := range [][]string{{"migration", "list"}, {"status"}, {"doctor"}} {
		if out, err := h.Ctl(t.Context(), args...); !strings.Contains(out, "goes on by itself") && (err == nil || !strings.Contains(err.Error(), "goes on by itself")) {
			t.Errorf("volferryctl %v does not say what ends it: %s, %v", args, out, err)
		}
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	h.untilState(t, v.ID, api.MigrationCompleted)
	g.writes(t)
	h.assertLeases(t, g)
	g.assertSettled(t)
}
