// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
)

// Exports of NBD servers as source and destination of the disk of a guest that runs and writes.

func TestAVolumeGoesFromAndToExportsUnderARunningGuest(t *testing.T) {
	leftToTestE2E(t)
	h, _, _ := sharedPools(t)
	g := h.runningGuest(t, h.served(t))
	for _, to := range []string{h.poolB + "/live.raw", h.served(t).Export.URI(), h.served(t).Export.URI()} {
		m := g.migrate(t, "vda", "--to-path", to)
		if m.Method != "overlay" || m.Dst.Path != to {
			t.Errorf("the volume went to %s by %s", m.Dst.Path, m.Method)
		}
		g.assertSettledAndGoOn(t)
		v := g.start(t, "vda", "--to-pool", "a")
		g.writes(t)
		v.copy(t)
		v.cancel(t)
		g.assertSettledAndGoOn(t)
	}
	g.powerOff(t)
	g.assertSettled(t)
}

// The overlay is folded without QEMU then, into an export in each direction.
func TestAGuestThatIsStoppedWhileItsVolumeMovesBetweenExportsIsFolded(t *testing.T) {
	leftToTestE2E(t)
	h, _, _ := sharedPools(t)
	g := h.runningGuest(t, h.served(t))
	for _, end := range []func(*move){
		func(v *move) { v.cancel(t) },
		func(v *move) { v.copy(t); v.finish(t) },
	} {
		v := g.start(t, "vda", "--to-path", h.served(t).Export.URI())
		g.writes(t)
		g.powerOff(t)
		end(v)
		g.assertSettled(t)
		g.boot(t)
	}
	g.powerOff(t)
	g.assertSettled(t)
}

// away ends the server of an export, and returns what brings it back.
func away(t *testing.T, d *lab.Disk) (back func()) {
	t.Helper()
	if err := d.Export.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := d.Export.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAServerThatIsKilledInAMoveIsSaidAndLosesNothing(t *testing.T) {
	leftToTestE2E(t)
	h, _, _ := sharedPools(t)
	src, dst := h.served(t), h.served(t)
	g := h.runningGuest(t, src)

	// dst in the copy, and before the job of the complete.
	v := g.start(t, "vda", "--to-path", dst.Export.URI(), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	back := away(t, &dst)
	if why := v.untilFailed(t, api.MigrationStarted); why.Code != api.CodeIOError {
		t.Errorf("the copy has failed with %v, want %s", why, api.CodeIOError)
	}
	g.writes(t)
	back()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	back = away(t, &dst)
	h.fails(t, api.ExitOpFailed, api.CodeStateForbidden, v.completeArgs()...)
	g.writes(t)
	back()
	v.complete(t)
	g.assertSettledAndGoOn(t)

	// The one that it is folded back into, with the guest stopped.
	v = g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	g.powerOff(t)
	back = away(t, &dst)
	if _, err := h.Ctl(t.Context(), v.cancelArgs()...); err == nil {
		t.Error("a cancel has ended without the server of the source")
	}
	back()
	v.cancel(t)
	g.boot(t)
	g.powerOff(t)
	g.assertSettled(t)
}

// exports is a guest whose disk goes to and fro between two exports, or images.
type exports struct {
	*guest

	a, b string
}

func exportsGuest(t *testing.T) *exports {
	t.Helper()
	h := startHost(t)
	src, dst := h.served(t), h.served(t)
	return &exports{h.runningGuest(t, src), src.Export.URI(), dst.Export.URI()}
}

// other are the flags of a move to the one where the disk is not.
func (g *exports) other(t *testing.T) []string {
	t.Helper()
	to := g.b
	if g.volume(t, "vda").Location.Path == g.b {
		to = g.a
	}
	return []string{"--yes", "--to-path", to}
}

// diesInMoves has the daemon die at steps of a move.
func (g *exports) diesInMoves(t *testing.T) {
	t.Helper()
	x := g.trial(api.MigrationCompleted, "running", func(t *testing.T) []string {
		return append([]string{"volume", "migrate", g.volumeName("vda")}, g.other(t)...)
	})
	x.strikeAt(t, x.way(t).chosen(t), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

// diesInCancels has the daemon die at steps of a cancel.
func (g *exports) diesInCancels(t *testing.T) {
	t.Helper()
	x := g.trial(api.MigrationCancelled, "running", func(t *testing.T) []string {
		v := g.start(t, "vda", g.other(t)...)
		g.writes(t)
		return v.cancelArgs()
	})
	x.strikeAt(t, x.way(t).of("migration_cancel").chosen(t), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestKillAtEveryStepOfAMoveBetweenExportsUnderARunningGuest(t *testing.T) {
	leftToTestE2E(t)
	exportsGuest(t).diesInMoves(t)
}

func TestKillAtEveryStepOfACancelOfAMoveBetweenExports(t *testing.T) {
	leftToTestE2E(t)
	exportsGuest(t).diesInCancels(t)
}

func TestKillAtEveryStepOfTheFoldOfAStoppedGuestIntoAnExport(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := exportsGuest(t)
	g.powerOff(t)
	x := g.trial(api.MigrationCompleted, "shut off", func(t *testing.T) []string {
		v := g.start(t, "vda", g.other(t)...)
		g.boot(t)
		g.powerOff(t)
		v.copy(t)
		return v.completeArgs()
	})
	x.strikeAt(t, x.way(t).of("migration_complete"), g.host.daemonDies(nothingElse))
	g.assertSettled(t)
}

func TestAVolumeAtAnExportIsGivenToAndTakenFromARunningGuest(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	d, to := h.served(t), h.served(t).Export.URI() // which outlive the volume
	d.Path = d.Export.URI()
	p := g.attach(t, h.adoptVolume(t, d))
	p.writes(t)
	m := get[api.Migration](t, h, "migration", "volume", "migrate", p.name, "--to-path", to)
	if m.State != api.MigrationCompleted || m.Method != "overlay" {
		t.Fatalf("ended as %s by %s", m.State, m.Method)
	}
	g.noteMove(t, m)
	p.writes(t)
	p.quiesce(t)
	p.detach(t)
	p.assertHolds(t)
	g.powerOff(t)
	g.assertSettled(t)
}

func TestADiskWithAStartupPolicyGoesToNoExport(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
	file := filepath.Join(t.TempDir(), "domain.xml")
	source := "<source file='" + g.disks[0].Path + "'"
	with := strings.Replace(h.virsh(t, "dumpxml", g.Name, "--inactive"), source, source+" startupPolicy='optional'", 1)
	if err := os.WriteFile(file, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	h.virsh(t, "define", file)
	g.slots = g.persistentSlots(t)
	g.boot(t)
	g.adopt(t)
	e := g.refusesToMove(t, "vda", api.CodeUnsupportedDisk, "--to-path", h.served(t).Export.URI())
	mustContain(t, e.Message, "startupPolicy='optional'", "take it out of the definition first")
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettledAndGoOn(t)
	g.powerOff(t)
	g.assertSettled(t)
}
