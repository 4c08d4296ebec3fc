// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var memoryTests = map[string]func(*testing.T, *bench){
	"ASavedGuestGoesOnWithOtherImages":      testSaveRestore,
	"SavedDisksAreThoseThatTheProcessHad":   testSavedDisks,
	"OnlyTheRestoreWithThePassHasIt":        testStartToken,
	"SaveSaysWhyNotAndTheGuestGoesOn":       testSaveRefuses,
	"RestoreSaysWhyNotAndTheDomainStaysOff": testRestoreRefuses,
}

func (g *guest) save(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "memory")
	g.isNotBeingSaved(t)
	ok(t, g.hv.SaveMemory(t.Context(), g.id, file))
	g.isNotBeingSaved(t)
	if d := g.domain(t); d.State != hv.StateStopped || d.Live != nil || d.ManagedSave {
		t.Fatalf("a saved domain is %+v", d)
	}
	return file
}

func (g *guest) isNotBeingSaved(t *testing.T) {
	t.Helper()
	if saving, err := g.hv.SavingMemory(t.Context(), g.id); err != nil || saving {
		t.Errorf("SavingMemory = %t, %v, and nobody saves it", saving, err)
	}
}

func testSaveRestore(t *testing.T, b *bench) {
	for _, paused := range []bool{false, true} {
		g := b.start(t)
		g.GuestWrite(t, g.id, "vda", 1, 2)
		before := g.domain(t)
		if paused {
			ok(t, g.hv.Suspend(t.Context(), g.id))
		}
		file := g.save(t)
		b.CheckImage(t, g.src, 1, 2)
		b.WriteImage(t, g.src, 2, 9)
		dst := b.image(t, "dst.raw", Raw)
		b.WriteImage(t, dst, 0, 1)
		b.WriteImage(t, dst, 1, 2)
		ok(t, g.hv.RestoreMemory(t.Context(), g.id, file, hv.RestoreOptions{Chains: map[string][]hv.Image{"vda": {dst}}, Paused: paused}))
		after := g.domain(t)
		if want := map[bool]hv.State{false: hv.StateRunning, true: hv.StatePaused}[paused]; after.State != want {
			t.Errorf("the domain is %s, want %s", after.State, want)
		}
		if !before.Booted || after.Booted {
			t.Errorf("booted: %t before the save and %t after the restore", before.Booted, after.Booted)
		}
		if diff := cmp.Diff(before.Config, after.Config); diff != "" {
			t.Errorf("the definition (-before +after):\n%s", diff)
		}
		before.LiveDisk("vda").Chain = []hv.Image{dst}
		if diff := cmp.Diff(before.Live, after.Live); diff != "" {
			t.Errorf("live disks (-want +got):\n%s", diff)
		}
		if how := g.openFor(t, g.src); how != "" {
			t.Errorf("src is open for %q", how)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the file is gone: %v", err)
		}
		ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{dst}))
		ok(t, g.hv.Resume(t.Context(), g.id))
		g.GuestWrite(t, g.id, "vda", 3, 4)
		g.CheckGuest(t, g.id, "vda", 1, 2)
		g.CheckGuest(t, g.id, "vda", 2, 0)
	}
}

func testSaveRefuses(t *testing.T, b *bench) {
	g := b.start(t)
	off := b.define(t, nil, b.image(t, "off.raw", Raw))
	file := filepath.Join(t.TempDir(), "memory")
	for name, c := range map[string]struct {
		id   string
		want error
	}{
		"off":     {off, hv.ErrNotActive},
		"no such": {uuid.NewString(), hv.ErrNotFound},
	} {
		if err := b.hv.SaveMemory(t.Context(), c.id, file); !errors.Is(err, c.want) {
			t.Errorf("%s: SaveMemory = %v, want %v", name, err, c.want)
		}
	}
	ok(t, os.WriteFile(file, []byte("of somebody else"), 0o600))
	if err := b.hv.SaveMemory(t.Context(), g.id, file); !errors.Is(err, hv.ErrExists) {
		t.Errorf("SaveMemory into a file that is there = %v, want ErrExists", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "of somebody else" {
		t.Errorf("the file that was there holds %q, %v", text, err)
	}
	if err := b.hv.SaveMemory(t.Context(), g.id, filepath.Join(file, "no", "directory")); err == nil {
		t.Error("SaveMemory without a directory = nil")
	}
	g.snapshot(t, 1)
	ok(t, g.hv.CommitActive(t.Context(), g.id, "vda", 1))
	if err := b.hv.SaveMemory(t.Context(), g.id, file+"2"); !errors.Is(err, hv.ErrBusy) {
		t.Errorf("SaveMemory with a block job = %v, want ErrBusy", err)
	}
	if d := g.domain(t); d.State != hv.StateRunning {
		t.Errorf("the domain is %s", d.State)
	}
	ok(t, g.hv.Suspend(t.Context(), g.id))
	ok(t, g.hv.AbortJob(t.Context(), g.id, "vda"))
	ok(t, g.hv.Resume(t.Context(), g.id))
	g.GuestWrite(t, g.id, "vda", 2, 3)
}

func testRestoreRefuses(t *testing.T, b *bench) {
	g := b.start(t)
	file := g.save(t)
	user := b.start(t)
	dst := map[string][]hv.Image{"vda": {user.src}}
	allow := b.Refuse(t, g.id, "it waits for its volume")
	restore := func(what, id, path string, chains map[string][]hv.Image, want error) {
		t.Helper()
		err := b.hv.RestoreMemory(t.Context(), id, path, hv.RestoreOptions{Chains: chains})
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: RestoreMemory = %v, want %v", what, err, want)
		}
		if d := g.domain(t); d.State != hv.StateStopped {
			t.Fatalf("%s: the domain is %s", what, d.State)
		}
	}
	restore("guarded", g.id, file, nil, hv.ErrGuarded)
	allow()
	restore("active", user.id, file, nil, hv.ErrActive)
	restore("no such domain", uuid.NewString(), file, nil, hv.ErrNotFound)
	restore("no such disk", g.id, file, map[string][]hv.Image{"vdz": {g.src}}, hv.ErrNotFound)
	restore("no such file", g.id, file+"2", nil, nil)
	restore("image in use", g.id, file, dst, hv.ErrInUse)
	restore("image without format", g.id, file, map[string][]hv.Image{"vda": {{Type: hv.SourceFile, Path: g.src.Path}}}, hv.ErrUnsupported)
	b.Destroy(t, user.id)
	restore("another domain's file", user.id, file, nil, nil)
	ok(t, b.hv.RestoreMemory(t.Context(), g.id, file, hv.RestoreOptions{}))
	g.wantLive(t, g.src)
	g.GuestWrite(t, g.id, "vda", 1, 2)
}

func testSavedDisks(t *testing.T, b *bench) {
	g := b.start(t)
	before := g.domain(t)
	file := g.save(t)
	other := b.image(t, "other.raw", Raw)
	ok(t, g.hv.SetConfigChain(t.Context(), g.id, "vda", []hv.Image{other}))
	disks, err := g.hv.SavedDisks(t.Context(), g.id, file)
	ok(t, err)
	if len(disks) != len(before.Live) || disks[0].Target != "vda" || disks[0].Device != "disk" || disks[0].Top() != before.LiveDisk("vda").Top() {
		t.Errorf("the saved disks are %+v, and were %+v", disks, before.Live)
	}
	wants := func(what, id, path string, want error) {
		t.Helper()
		disks, err := g.hv.SavedDisks(t.Context(), id, path)
		if err == nil || (want != nil && !errors.Is(err, want)) || (want == nil && errors.Is(err, hv.ErrIncomplete)) {
			t.Errorf("%s: SavedDisks = %v, %v, want %v", what, disks, err, want)
		}
	}
	wants("another domain's file", uuid.NewString(), file, nil)
	wants("no such file", g.id, file+".no", nil)
	ok(t, os.WriteFile(file+".cut", nil, 0o600))
	wants("a file that was hardly begun", g.id, file+".cut", hv.ErrIncomplete)
}

func testStartToken(t *testing.T, b *bench) {
	g := b.start(t)
	b.RefuseWithout(t, g.id, "the-token")
	file := g.save(t)
	restore := func(token string) error {
		return g.hv.RestoreMemory(t.Context(), g.id, file, hv.RestoreOptions{Paused: true, StartToken: token})
	}
	for what, err := range map[string]error{
		"a start": g.hv.PowerOn(t.Context(), g.id), "a restore without token": restore(""), "a restore with another": restore("another-token"),
	} {
		if !errors.Is(err, hv.ErrGuarded) {
			t.Errorf("%s = %v, want ErrGuarded", what, err)
		}
	}
	ok(t, restore("the-token"))
	ok(t, os.Remove(file))
	ok(t, g.hv.SaveMemory(t.Context(), g.id, file))
	b.RefuseWithout(t, g.id, "the-next-token")
	if err := restore("another-token"); !errors.Is(err, hv.ErrGuarded) {
		t.Errorf("a restore with another token = %v, want ErrGuarded", err)
	}
	ok(t, restore("the-next-token"))
	b.Destroy(t, g.id)
	if err := g.hv.PowerOn(t.Context(), g.id); !errors.Is(err, hv.ErrGuarded) {
		t.Errorf("a start after the restored process = %v, want ErrGuarded", err)
	}
}
