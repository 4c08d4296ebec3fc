// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

func (d *daemon) released() []api.ReleasedSource {
	d.t.Helper()
	all, err := d.manager().Released.List(context.Background(), "")
	must(d.t, err)
	return all
}

func (d *daemon) deleteSource(id string) error {
	_, err := d.manager().Released.Delete(context.Background(), uuid.NewString(), id, false)
	return err
}

func TestTheSourceThatAMoveLeavesIsListedAndDeletedOnce(t *testing.T) {
	for method, target := range map[string]api.MigrationTarget{
		"overlay": toNewPool, "mirror": {ToPool: "new", Method: api.MethodMirror},
	} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if got := d.released(); len(got) != 0 {
					t.Errorf("before: %+v", got)
				}
				id := d.migrateTo(target)
				if err := d.deleteSource(id); api.CodeOf(err) != api.CodeStateForbidden {
					t.Errorf("under way: %v, want state_forbidden", err)
				}
				d.until(id, api.MigrationCompleted)
				got := d.released()
				if len(got) != 1 || got[0].MigrationID != id || got[0].Location.Path != srcPath || got[0].Blocked != "" || got[0].ReleasedAt.IsZero() {
					t.Fatalf("released %+v, want src", got)
				}
				must(t, d.deleteSource(id[:13]))
				if d.world.Exists(srcPath) || len(d.released()) != 0 {
					t.Errorf("src is there: %t, released %+v", d.world.Exists(srcPath), d.released())
				}
				if err := d.deleteSource(id); api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "was deleted already, at ") {
					t.Errorf("again: %v, want not_found, as it was deleted", err)
				}
			})
		})
	}
}

func TestACancelledMoveHasLeftNoSource(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		if got := d.released(); len(got) != 0 {
			t.Errorf("released %+v", got)
		}
		if err := d.deleteSource(mig.ID); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("%v, want state_forbidden", err)
		}
		if !d.world.Exists(srcPath) {
			t.Error("src is gone")
		}
	})
}

func TestAReleasedSourceIsKeptIfAnythingSpeaksAgainstIt(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, d *daemon)
		want  api.Code
		says  string
	}{
		"its guest runs on it": {func(t *testing.T, d *daemon) {
			d.startOn(rawImage(srcPath))
			must(t, d.world.GuestWrite(testInstance, "vda", 0, 1<<40))
		}, api.CodeVolumeInUse, "disk vda of instance web"},
		"its guest would start on it":      {func(t *testing.T, d *daemon) { d.defineOn(t, rawImage(srcPath)) }, api.CodeVolumeInUse, "disk vda of instance web"},
		"another domain has it":            {func(t *testing.T, d *daemon) { d.world.DefineOn(t, srcPath) }, api.CodeVolumeInUse, "disk vda of instance other"},
		"another domain's disk is over it": {func(t *testing.T, d *daemon) { d.defineOver(t) }, api.CodeVolumeInUse, "disk vda of instance other"},
		"it is a volume": {func(_ *testing.T, d *daemon) {
			d.world.Registry.Others = []api.Volume{{ID: uuid.NewString(), Name: "another", Host: testHost, Location: api.Location{Path: srcPath, Format: api.FormatRaw}}}
		}, api.CodeVolumeInUse, "is volume"},
		"somebody has mounted it":         {func(_ *testing.T, d *daemon) { d.world.Images.Users = map[string]string{srcPath: "mounted at /mnt"} }, api.CodeVolumeInUse, "mounted at /mnt"},
		"a process writes to it":          {func(_ *testing.T, d *daemon) { d.world.Images.Writing = map[string]bool{srcPath: true} }, api.CodeVolumeInUse, "open for writing"},
		"a guest has written to it since": {func(t *testing.T, d *daemon) { d.ranOn(t, rawImage(srcPath)) }, api.CodeChainChanged, "after you have compared it with the volume"},
		"it is another file":              {func(t *testing.T, d *daemon) { d.replaceSrc(t) }, api.CodeChainChanged, "something else"},
		"its guest is on a third image":   {func(t *testing.T, d *daemon) { d.startElsewhere(t) }, api.CodeChainChanged, "nobody can tell which copy"},
		"the image of the volume is not there": {func(t *testing.T, d *daemon) {
			at := d.world.Registry.CurrentVolume().Location.Path
			must(t, d.world.Destroy(testInstance))
			d.world.Registry.Take()
			must(t, d.world.Remove(at))
		}, api.CodeChainChanged, "may be the only copy"},
		"the registry is away":                     {func(_ *testing.T, d *daemon) { d.world.Registry.SetDown(true) }, api.CodeRegistryUnavailable, ""},
		"the daemon cannot write in its directory": {func(_ *testing.T, d *daemon) { d.world.Images.ReadOnly = "/old" }, "", "/old"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				id := d.until(d.migrate(), api.MigrationCompleted).ID
				c.spoil(t, d)
				err := d.deleteSource(id)
				if err == nil || c.want != "" && api.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s: %q", err, c.want, c.says)
				}
				if !d.world.Exists(srcPath) {
					t.Error("src is gone")
				}
				if d.world.Registry.Down {
					return
				}
				for _, r := range d.released() {
					if r.Blocked == "" {
						t.Errorf("listed as free: %+v", r)
					}
				}
			})
		})
	}
}

// defineOn changes only the definition of the instance.
func (d *daemon) defineOn(t *testing.T, chain ...hv.Image) {
	t.Helper()
	must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", chain))
}

// defineOver defines another domain, on an overlay over src.
func (d *daemon) defineOver(t *testing.T) {
	t.Helper()
	const path = "/elsewhere/over.qcow2"
	must(t, d.world.CreateOverlay(path, rawImage(srcPath), testSize))
	must(t, d.world.Define(hv.Domain{ID: uuid.NewString(), Name: "other", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: path}, rawImage(srcPath)},
	}}}))
}

// ranOn lets the guest run from an image for a while, and puts it back.
func (d *daemon) ranOn(t *testing.T, chain ...hv.Image) {
	t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(t, err)
	right := dom.ConfigDisk("vda").Chain
	d.startOn(chain...)
	must(t, d.world.GuestWrite(testInstance, "vda", 0, 1<<40))
	d.startOn(right...)
}

func (d *daemon) replaceSrc(t *testing.T) {
	t.Helper()
	must(t, d.world.Remove(srcPath))
	pass(time.Second)
	must(t, d.world.CreateImage(srcPath, hvtest.Raw, testSize))
}

func (d *daemon) startElsewhere(t *testing.T) {
	t.Helper()
	must(t, d.world.CreateImage("/third.raw", hvtest.Raw, testSize))
	d.startOn(rawImage("/third.raw"))
}

func TestWhatAVolumeHasLeftIsKnownUntilItIsGoneOrAVolume(t *testing.T) {
	left := func(d *daemon) []string {
		paths, err := d.manager().Released.Left(context.Background(), testVolume)
		must(d.t, err)
		return paths
	}
	for name, gone := range map[string]func(t *testing.T, d *daemon){
		"removed":  func(t *testing.T, d *daemon) { must(t, d.world.Remove(srcPath)) },
		"replaced": func(t *testing.T, d *daemon) { d.replaceSrc(t) },
		"a volume": func(_ *testing.T, d *daemon) {
			d.world.Registry.Others = []api.Volume{{ID: uuid.NewString(), Name: "another", Host: testHost, Location: api.Location{Path: srcPath}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if got := left(d); len(got) != 0 {
					t.Errorf("before: %v", got)
				}
				d.until(d.migrate(), api.MigrationCompleted)
				if got := left(d); len(got) != 1 || got[0] != srcPath {
					t.Errorf("%v, want src", got)
				}
				gone(t, d)
				if got := left(d); len(got) != 0 {
					t.Errorf("after: %v", got)
				}
			})
		})
	}
}

// leaveFile moves the volume to a file and on into the pool, and returns that file and the id of
// the move that has left it.
func (d *daemon) leaveFile(t *testing.T) (path, id string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "left.raw")
	d.until(d.migrateTo(api.MigrationTarget{ToPath: path}), api.MigrationCompleted)
	return path, d.until(d.migrateTo(toNewPool), api.MigrationCompleted).ID
}

// The guest ran on the image that the volume has left, and its writes are only there.
func TestAReleasedSourceThatWasWrittenIsNotOverwritten(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveFile(t)
		d.ranOn(t, rawImage(path))
		must(t, os.WriteFile(path, nil, 0o600))
		link := path + ".link"
		must(t, os.Link(path, link))
		must(t, d.world.CreateImage(link, hvtest.Raw, testSize))
		for name, at := range map[string]string{"its path": path, "another name": link} {
			target := api.MigrationTarget{ToPath: at}
			if _, err := d.manager().Plan(context.Background(), testVolume, target); api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "written since") || !strings.Contains(err.Error(), id) {
				t.Errorf("%s: a plan: %v, want dst_in_use that names %s", name, err, id)
			}
			if _, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true}); api.CodeOf(err) != api.CodeDstInUse {
				t.Errorf("%s: a move: %v, want dst_in_use", name, err)
			}
		}
	})
}

func TestAReleasedSourceThatNobodyHasWrittenIsOverwritten(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveFile(t)
		target := api.MigrationTarget{ToPath: path}
		plan, err := d.manager().Plan(context.Background(), testVolume, target)
		if err != nil || plan.DstLeftBy != id {
			t.Errorf("left by %q, %v, want %s", plan.DstLeftBy, err, id)
		}
		if mig := d.until(d.migrateTo(target), api.MigrationCompleted); mig.Dst.Path != path {
			t.Errorf("the volume is at %s, want %s", mig.Dst.Path, path)
		}
	})
}

// A refused copy has written nothing.
func TestACopyThatHasWrittenNothingHidesNoReleasedSource(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		path, id := d.leaveFile(t)
		mig := d.begin(api.MigrationTarget{ToPath: path})
		d.world.DefineOn(t, path)
		must(t, d.world.Start(migratetest.SrcAttachment))
		must(t, d.world.Fake.GuestWrite(migratetest.SrcAttachment, "vda", 3, 1<<41))
		_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
		must(t, err)
		if now := d.until(mig.ID, api.MigrationStarted); now.Error == nil {
			t.Fatal("the copy was not refused")
		}
		must(t, d.world.Stop(migratetest.SrcAttachment))
		must(t, d.world.Undefine(migratetest.SrcAttachment))
		d.until(d.cancels(mig.ID), api.MigrationCancelled)
		d.isStillReleased(t, path, id)
	})
}

// A move has begun to overwrite the old content, so there is nothing left to keep of it; but a
// guest has run there since, so its writes need a confirmation.
func TestAReleasedSourceThatACancelledMoveHasCopiedOverIsNoReleasedSource(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveFile(t)
		target := api.MigrationTarget{ToPath: path}
		mig := d.begin(target)
		d.copyAndCancel(mig.ID)
		d.ranOn(t, rawImage(path)) // its content differs from the copy
		if _, err := d.manager().Plan(context.Background(), testVolume, target); api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "--yes") {
			t.Errorf("%v, want dst_in_use with --yes", err)
		}
		target.Overwrite = true
		plan, err := d.manager().Plan(context.Background(), testVolume, target)
		if err != nil || plan.DstLeftBy == id {
			t.Errorf("left by %q, %v, want a plan that overwrites what nobody has left", plan.DstLeftBy, err)
		}
		if got := d.released(); len(got) != 1 || got[0].Location.Path != srcPath {
			t.Errorf("released %+v, want %s alone", got, srcPath)
		}
		if err := d.deleteSource(id); api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "migration "+mig.ID) {
			t.Errorf("%v, want not_found that names %s", err, mig.ID)
		}
	})
}
