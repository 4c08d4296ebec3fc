// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// ofClones runs a test on worlds with a linked clone, whose base image must not change.
func ofClones(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	for _, state := range allStates {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, migratetest.CloneWorld(t, state))
				before, err := d.world.ReadImage(migratetest.BasePath)
				must(t, err)
				f(t, d)
				after, err := d.world.ReadImage(migratetest.BasePath)
				must(t, err)
				if !maps.Equal(before, after) {
					t.Error("the base image was written")
				}
			})
		})
	}
}

func TestAMoveMakesALinkedCloneAVolumeOfItsOwn(t *testing.T) {
	ofClones(t, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", ToFormat: api.FormatRaw, DeleteSource: true}), api.MigrationCompleted)
		if mig.Src.Backing == "" || mig.Dst.Backing != "" {
			t.Errorf("moved from %+v to %+v", mig.Src, mig.Dst)
		}
		d.isOn(t, hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: mig.Dst.Path})
		if d.world.Exists(srcPath) {
			t.Error("the clone was to be deleted")
		}
	})
}

func TestAMoveThatKeepsTheBaseImagesCopiesWhatTheCloneHas(t *testing.T) {
	ofClones(t, func(t *testing.T, d *daemon) {
		must(t, d.world.Fake.SetFull(migratetest.BasePath, true)) // whoever writes to it fails
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", KeepBase: true, DeleteSource: true}), api.MigrationCompleted)
		if mig.Src.Backing == "" || mig.Dst.Backing != mig.Src.Backing || mig.Dst.Format != api.FormatQcow2 {
			t.Errorf("moved from %+v to %+v", mig.Src, mig.Dst)
		}
		d.isOn(t, hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: mig.Dst.Path}, hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: migratetest.BasePath})
		if at := d.world.Registry.CurrentVolume().Location; at != mig.Dst {
			t.Errorf("the registry has the volume at %+v", at)
		}
		if w, err := d.manager().Which(context.Background(), d.world.Registry.CurrentVolume()); err != nil || !w.Agree || len(w.Authoritative) != 2 {
			t.Errorf("the chain is %+v (%v)", w, err)
		}
	})
}

func TestOnlyALinkedCloneKeepsItsBaseImagesInANewFile(t *testing.T) {
	to := func(change func(*api.MigrationTarget)) api.MigrationTarget {
		target := api.MigrationTarget{ToPath: "/new/clone.qcow2", KeepBase: true}
		change(&target)
		return target
	}
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
		to    api.MigrationTarget
		code  api.Code
	}{
		"no clone":      {migratetest.NewWorld, to(func(t *api.MigrationTarget) { t.ToFormat = api.FormatQcow2 }), api.CodeInvalidArgument},
		"raw":           {migratetest.CloneWorld, to(func(t *api.MigrationTarget) { t.ToFormat = api.FormatRaw }), api.CodeInvalidArgument},
		"mirror":        {migratetest.CloneWorld, to(func(t *api.MigrationTarget) { t.Method = api.MethodMirror }), api.CodeInvalidArgument},
		"external copy": {migratetest.CloneWorld, to(func(t *api.MigrationTarget) { t.ExternalCopy = true }), api.CodeInvalidArgument},
		"an address":    {migratetest.CloneWorld, to(func(t *api.MigrationTarget) { t.ToPath = migratetest.OtherExport.Path }), api.CodeInvalidArgument},
		"its own pool": {func(t *testing.T, state hv.State) *migratetest.World {
			t.Helper()
			w := migratetest.CloneWorld(t, state)
			w.Registry.Vol.Location.Pool = "new"
			return w
		}, api.MigrationTarget{ToPool: "new", KeepBase: true}, api.CodeSameLocation},
		"what is there": {func(t *testing.T, state hv.State) *migratetest.World {
			t.Helper()
			w := migratetest.CloneWorld(t, state)
			must(t, w.CreateImage("/new/clone.qcow2", hvtest.Qcow2, migratetest.Size))
			return w
		}, to(func(t *api.MigrationTarget) { t.Overwrite = true }), api.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, c.world(t, hv.StateRunning))
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.to})
				if api.CodeOf(err) != c.code {
					t.Errorf("got %v, want %s", err, c.code)
				}
			})
		})
	}
}

// isOn claims that the disk is on this chain, with all that its guest wrote.
func (d *daemon) isOn(t *testing.T, want ...hv.Image) {
	t.Helper()
	d.world.SetQuiet()
	r := &hosttest.Recorder{}
	d.world.AssertNoWriteLost(r)
	d.world.AssertClean(r)
	for _, problem := range r.Problems {
		t.Error(problem)
	}
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(t, err)
	if config := dom.ConfigDisk("vda"); !slices.Equal(config.Chain, want) || !config.Terminated {
		t.Errorf("the definition has %+v, want %v with its end", config, want)
	}
}

func TestACancelFoldsIntoALinkedCloneAndNoDeeper(t *testing.T) {
	ofClones(t, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		for range 20 {
			d.world.GuestWrites()
		}
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.SrcAttachmentID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.isOn(t, hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: srcPath}, hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: migratetest.BasePath})
	})
}

func TestALinkedCloneIsRefusedWhereItsChainIsAnother(t *testing.T) {
	other := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/old/other.raw"}
	for name, change := range map[string]func(*testing.T, *migratetest.World){
		"in its header": func(t *testing.T, w *migratetest.World) { must(t, w.Rebase(srcPath, other)) },
		"in the definition": func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) {
				d.Config[0].Chain = []hv.Image{{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: srcPath}, other}
			})
		},
		"in the definition, which ends it": func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].Format = hvtest.Qcow2 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := migratetest.CloneWorld(t, hv.StateStopped)
				must(t, w.CreateImage(other.Path, hvtest.Raw, migratetest.Size))
				change(t, w)
				_, err := newDaemon(t, w).manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
				if api.CodeOf(err) != api.CodeChainChanged {
					t.Errorf("got %v, want chain_changed", err)
				}
			})
		})
	}
}
