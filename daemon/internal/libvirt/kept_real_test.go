// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// testKept makes every call that changes a domain, and compares libvirt's changes on disk with the
// directories that the connection would sync.
func testKept(t *testing.T, env *realEnv) {
	leftToTestConformance(t)
	definitions := filepath.Join(env.libvirtd.EtcDir, "qemu")
	saves, nvram := filepath.Join(env.libvirtd.StateDir(), "save"), env.libvirtd.NVRAMDir()
	dirs := []string{definitions, filepath.Join(definitions, "autostart"), saves, nvram}
	for _, other := range []string{"snapshot", "checkpoint"} {
		dirs = append(dirs, filepath.Join(env.libvirtd.StateDir(), other))
	}
	var changed []string // by the calls so far
	step := func(name string, want []string, do func() error) {
		t.Helper()
		must(t, env.conn.MakeDurable())
		before := make([]map[string]string, len(dirs))
		for i, dir := range dirs {
			before[i] = filesIn(t, dir)
		}
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := env.conn.Unsynced(); !slices.Equal(got, want) {
			t.Errorf("%s: %v are to be synced, want %v", name, got, want)
		}
		for i, dir := range dirs {
			if cmp.Equal(before[i], filesIn(t, dir)) {
				continue
			}
			changed = append(changed, dir)
			if !slices.Contains(want, dir) {
				t.Errorf("%s changed %s, which is not synced", name, dir)
			}
		}
	}
	ctx := t.Context()
	id, src := env.define(t)
	dst := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, "dst.raw")}
	over := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: env.Path(t, "over.qcow2")}
	env.CreateImage(t, dst.Path, dst.Format, 1<<20)
	env.CreateOverlay(t, over.Path, src, 1<<20)
	def, err := env.conn.DomainDefinition(ctx, id)
	must(t, err)
	slot, err := env.conn.DiskDefinition(ctx, id, hv.Config, "vda")
	must(t, err)
	def.Autostart = true
	disk := hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: dst}
	saved := filepath.Join(env.dir, "kept.saved")
	name := func(chain ...hv.Image) func() error {
		return func() error { return env.conn.SetConfigChain(ctx, id, "vda", chain) }
	}

	def1, both, start := []string{definitions}, []string{definitions, filepath.Join(definitions, "autostart")}, []string{saves, nvram}
	step("UndefineDomain", both, func() error { return env.conn.UndefineDomain(ctx, id) })
	step("UndefineDomain again", both, func() error { return env.conn.UndefineDomain(ctx, id) })
	step("DefineDomain", both, func() error {
		return env.conn.DefineDomain(ctx, id, def, []hv.DiskSpec{{Target: "vda", Image: src, Slot: slot}})
	})
	step("AttachDisk to the definition", def1, func() error { return env.conn.AttachDisk(ctx, id, hv.Config, disk) })
	step("DetachDisk from the definition", def1, func() error { return env.conn.DetachDisk(ctx, id, hv.Config, "vdc") })
	step("PowerOn", start, func() error { return env.conn.PowerOn(ctx, id) })
	step("AttachDisk to the guest", nil, func() error { return env.conn.AttachDisk(ctx, id, hv.Live, disk) })
	step("PowerOff", nil, func() error { return env.conn.PowerOff(ctx, id) })
	env.Start(t, id)
	env.virsh(t, "managedsave", id)
	step("PowerOn of a saved domain", start, func() error { return env.conn.PowerOn(ctx, id) })
	step("SetConfigChain", def1, name(over, src))
	step("SetConfigChain again", def1, name(over, src))
	must(t, name(src)())
	step("Snapshot", def1, func() error { _, err := env.conn.Snapshot(ctx, id, "vda", over); return err })
	step("BlockCopy", nil, func() error { return env.conn.BlockCopy(ctx, id, "vda", dst, hv.BlockCopyOptions{Shallow: true}) })
	step("SetJobBandwidth", nil, func() error { return env.conn.SetJobBandwidth(ctx, id, "vda", 1<<20) })
	step("AbortJob", nil, func() error { return env.conn.AbortJob(ctx, id, "vda") })
	step("CommitActive", nil, func() error { return env.conn.CommitActive(ctx, id, "vda", 0) })
	env.awaitReady(t, id)
	step("Suspend", nil, func() error { return env.conn.Suspend(ctx, id) })
	step("Pivot", def1, func() error { return env.conn.Pivot(ctx, id, "vda") })
	step("Resume", nil, func() error { return env.conn.Resume(ctx, id) })
	step("PutWriteLimit", nil, func() error { return env.conn.PutWriteLimit(ctx, id, "vda", 1<<20) })
	step("SaveMemory", nil, func() error { return env.conn.SaveMemory(ctx, id, saved) })
	step("RestoreMemory", []string{nvram}, func() error { return env.conn.RestoreMemory(ctx, id, saved, hv.RestoreOptions{}) })
	env.Destroy(t, id)
	for _, dir := range []string{definitions, filepath.Join(definitions, "autostart"), saves} {
		if !slices.Contains(changed, dir) {
			t.Errorf("no call has changed %s: this test looks at the wrong place", dir)
		}
	}
}

// awaitReady waits until the job on vda is ready.
func (e *realEnv) awaitReady(t *testing.T, id string) {
	t.Helper()
	events, over := e.conn.Events(t.Context()), time.After(time.Minute)
	for {
		d, err := e.conn.Domain(t.Context(), id)
		must(t, err)
		if mirror := d.LiveDisk("vda").Mirror; mirror != nil && mirror.Ready {
			return
		}
		if again, err := hv.Await(t.Context(), events, id, 20*time.Millisecond, over); err != nil || !again {
			t.Fatalf("the job does not get ready: %v", err)
		}
	}
}

// filesIn reads the files of a directory, and the targets of its links.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			files[e.Name()], err = os.Readlink(path)
		case e.Type().IsRegular():
			var content []byte
			content, err = os.ReadFile(path)
			files[e.Name()] = string(content)
		}
		must(t, err)
	}
	return files
}

// testDeletionSynced: libvirt unlinks the file of a volume and syncs nothing.
func testDeletionSynced(t *testing.T, env *realEnv) {
	made, err := env.conn.CreateVolume(t.Context(), env.Pool(t), "deleted.raw", hvtest.Raw, 1<<20, nil)
	must(t, err)
	var synced []string
	defer env.conn.WatchSyncs(func(dir string) {
		if _, err := os.Stat(made.Path); !os.IsNotExist(err) {
			t.Errorf("%s is synced when the file is there: %v", dir, err)
		}
		synced = append(synced, dir)
	})()
	for _, which := range []string{"the volume", "one that is gone, maybe by a daemon that died before it synced,"} {
		synced = nil
		must(t, env.conn.DeleteVolume(t.Context(), env.Pool(t), made.Name))
		if want := []string{filepath.Dir(made.Path)}; !slices.Equal(synced, want) {
			t.Errorf("the deletion of %s synced %v, want %v", which, synced, want)
		}
	}
}
