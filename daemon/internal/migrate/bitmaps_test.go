// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

var dropBitmaps = api.MigrationTarget{ToPool: "new", Checkpoints: api.CheckpointsDrop}

// recordedWorld is a world with a qcow2 image with the bitmap b0 as the volume.
func recordedWorld(t *testing.T, state hv.State) *migratetest.World {
	t.Helper()
	w := migratetest.Qcow2World(t, hv.StateStopped)
	must(t, w.AddBitmap(srcPath, "b0"))
	if state.Active() {
		must(t, w.Start(testInstance))
	}
	return w
}

// refusesToStart checks that a move, and a plan of it, is refused, and that nothing is changed.
func (d *daemon) refusesToStart(target api.MigrationTarget, words ...string) {
	d.t.Helper()
	_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
	if api.CodeOf(err) != api.CodeUnsupportedDisk {
		d.t.Fatalf("got %v, want %s", err, api.CodeUnsupportedDisk)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			d.t.Errorf("the message %q does not say %q", err, w)
		}
	}
	if _, planned := d.manager().Plan(context.Background(), testVolume, target); planned == nil || planned.Error() != err.Error() {
		d.t.Errorf("the plan of the move says %v, the move %v", planned, err)
	}
	if list, err := d.manager().List(context.Background(), true); err != nil || len(list) != 0 {
		d.t.Errorf("a refused start left migrations %v (%v)", list, err)
	}
	d.stayed()
}

func (d *daemon) bitmapsAt(path string, want ...string) {
	d.t.Helper()
	got, err := d.world.Bitmaps(path)
	must(d.t, err)
	if !slices.Equal(got, want) {
		d.t.Errorf("%s has the bitmaps %v, want %v", path, got, want)
	}
}

func TestABitmapOfARunningGuestIsRefusedWithACommandThatRemovesIt(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, dropBitmaps} {
		inBubbleOn(t, recordedWorld, hv.StateRunning, func(_ *testing.T, d *daemon) {
			d.refusesToStart(target, `dirty bitmap "b0"`, "--method mirror", "virsh qemu-monitor-command web", "block-dirty-bitmap-remove", "node-of-"+srcPath)
			must(t, d.world.DropBitmap(srcPath, "b0"))
			mig := d.until(d.migrateTo(target), api.MigrationCompleted)
			d.moved(mig)
			d.bitmapsAt(mig.Dst.Path)
		})
	}
}

func TestAMirrorTakesBitmapsAlongWholeAndNotToARawImage(t *testing.T) {
	inBubbleOn(t, recordedWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		raw := mirrorToNewPool
		raw.ToFormat = api.FormatRaw
		d.refusesToStart(raw, `dirty bitmap "b0"`)
		mig := d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted)
		d.moved(mig)
		d.bitmapsAt(mig.Dst.Path, "b0")
		has := d.world.BitmapBlocks(mig.Dst.Path, "b0")
		for _, block := range d.world.BitmapBlocks(srcPath, "b0") {
			if !slices.Contains(has, block) {
				t.Errorf("the bitmap at the destination forgets block %d", block)
			}
		}
	})
}

func TestAMirrorRefusesToLoseBitmapsThatNoteNoWrites(t *testing.T) {
	inBubbleOn(t, recordedWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.DisableBitmap(srcPath, "b0"))
		must(t, d.world.AddBitmap(srcPath, "b1"))
		d.refusesToStart(mirrorToNewPool, `dirty bitmap "b0"`, "--checkpoints drop", "block-dirty-bitmap-remove")
		drop := mirrorToNewPool
		drop.Checkpoints = api.CheckpointsDrop
		mig := d.until(d.migrateTo(drop), api.MigrationCompleted)
		d.bitmapsAt(mig.Dst.Path, "b1")
		if !strings.Contains(mig.Remark, `does not have the dirty bitmap "b0"`) {
			t.Errorf("the migration remarks %q", mig.Remark)
		}
	})
}

func TestACancelOfAStoppedGuestSaysWhichBitmapsOfItsOverlayItLoses(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"qcow2": migratetest.Qcow2World, "raw": migratetest.NewWorld} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, world, hv.StateStopped, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				must(t, d.world.AddBitmap("/overlays/"+mig.ID+".qcow2", "late"))
				mig = d.until(d.cancels(mig.ID), api.MigrationCancelled)
				if !strings.Contains(mig.Remark, `does not have the dirty bitmap "late"`) {
					t.Errorf("the migration remarks %q", mig.Remark)
				}
			})
		})
	}
}

func TestABitmapAtRestIsLostOnlyIfThatIsAskedForAndIsSaid(t *testing.T) {
	for name, prepare := range map[string]func(*daemon){
		"attached": func(*daemon) {},
		"unattached": func(d *daemon) {
			must(d.t, d.world.Undefine(testInstance))
			d.world.Unattached()
		},
		"of a disk that has no overlay": func(d *daemon) {
			d.world.Redefine(d.t, func(dom *hv.Domain) {
				dom.Config[0].Chain[0].Format, dom.Config[0].ErrorPolicy = hvtest.Qcow2, "report"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, recordedWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
				prepare(d)
				_, err := d.manager().Plan(t.Context(), testVolume, toNewPool)
				if api.CodeOf(err) != api.CodeUnsupportedDisk || !strings.Contains(err.Error(), "--checkpoints drop") {
					t.Fatalf("without the flag: %v", err)
				}
				plan, err := d.manager().Plan(t.Context(), testVolume, dropBitmaps)
				must(t, err)
				if !strings.Contains(plan.Warning, `does not have the dirty bitmap "b0"`) {
					t.Errorf("the plan warns %q", plan.Warning)
				}
				mig := d.until(d.migrateTo(dropBitmaps), api.MigrationCompleted)
				if !strings.Contains(mig.Remark, `does not have the dirty bitmap "b0"`) {
					t.Errorf("the migration remarks %q", mig.Remark)
				}
				d.bitmapsAt(mig.Dst.Path)
				d.bitmapsAt(srcPath, "b0")
			})
		})
	}
}

// A guest that is started during a move that drops bitmaps runs on an overlay without bitmaps.
func TestADroppedBitmapIsNotAtTheDestinationOfAGuestThatWasStarted(t *testing.T) {
	inBubbleOn(t, recordedWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(dropBitmaps)
		must(t, d.world.Start(testInstance))
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		d.moved(d.until(d.completes(mig), api.MigrationCompleted))
		d.bitmapsAt(mig.Dst.Path)
	})
}

func TestABitmapThatAppearsBeforeTheOverlayIsMadeEndsTheStart(t *testing.T) {
	inBubbleOn(t, migratetest.Qcow2World, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.journal.AfterAppend(func(r op.Record) {
			if r.Step == "switch_to_overlay" && r.Kind == op.EventStarted {
				must(t, d.world.AddBitmap(srcPath, "late"))
			}
		})
		mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
		must(t, err)
		mig = d.until(mig.ID, api.MigrationError, api.MigrationCancelled)
		if mig.Error == nil || mig.Error.Code != api.CodeUnsupportedDisk || !strings.Contains(mig.Error.Message, `"late"`) {
			t.Errorf("the migration ended with %v", mig.Error)
		}
		d.gone(mig)
	})
}

// Another program makes a bitmap during a move.
func TestABitmapThatAppearsInAMoveIsKeptOrRefusedAtItsEnd(t *testing.T) {
	toRaw := api.MigrationTarget{ToPool: "new", ToFormat: api.FormatRaw}
	for _, c := range []struct {
		name   string
		state  hv.State
		target api.MigrationTarget
		at     []string
		kept   bool
	}{
		{"in the overlay, to a qcow2 image", hv.StateRunning, toNewPool, []string{overlayPath}, true},
		{"in the overlay, to a raw image", hv.StateRunning, toRaw, []string{overlayPath}, false},
		{"in the source", hv.StateRunning, toNewPool, []string{srcPath}, false},
		{"in the source and in the overlay", hv.StateRunning, toNewPool, []string{srcPath, overlayPath}, false},
		{"in the overlay of a guest that is off", hv.StateStopped, toNewPool, []string{overlayPath}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleOn(t, migratetest.Qcow2World, c.state, func(t *testing.T, d *daemon) {
				mig := d.begin(c.target)
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				mig = d.until(mig.ID, api.MigrationCopied)
				overlay := "/overlays/" + mig.ID + ".qcow2"
				for _, path := range c.at {
					if path == overlayPath {
						path = overlay
					}
					must(t, d.world.AddBitmap(path, "late"))
				}
				d.world.GuestWrites()
				if c.kept {
					d.moved(d.until(d.completes(mig), api.MigrationCompleted))
					d.bitmapsAt(mig.Dst.Path, "late")
					return
				}
				call := Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID}
				_, _, err = d.manager().Complete(context.Background(), call)
				must(t, err)
				failed := d.ended(call.OpID)
				if failed == nil {
					t.Fatal("the complete went through")
				}
				if !strings.Contains(failed.Message, `"late"`) || !strings.Contains(failed.Message, "volferryctl migration cancel "+mig.ID) {
					t.Errorf("the complete ended with %v", failed)
				}
				if c.state.Active() {
					d.until(d.cancels(mig.ID), api.MigrationCancelled)
					d.stayed()
					return
				}
				must(t, d.world.DropBitmap(overlay, "late"))
				d.moved(d.until(d.completes(mig), api.MigrationCompleted))
			})
		})
	}
}

func TestADestinationWithABitmapOfItsOwnIsRefused(t *testing.T) {
	inBubbleOn(t, migratetest.Qcow2World, hv.StateStopped, func(t *testing.T, d *daemon) {
		path := t.TempDir() + "/dst.qcow2"
		must(t, d.world.CreateImage(path, hvtest.Qcow2, testSize))
		must(t, d.world.AddBitmap(path, "old"))
		d.refusesToStart(api.MigrationTarget{ToPath: path}, "qemu-img bitmap -f qcow2 --remove "+path+" old")
	})
}

func TestTheMirrorOfALinkedCloneDoesNotTakeTheBitmapOfItsBaseImageForItsOwn(t *testing.T) {
	inBubbleOn(t, migratetest.CloneWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		base := "/old/base.qcow2"
		must(t, d.world.CreateImage(base, hvtest.Qcow2, testSize))
		must(t, d.world.Copy(migratetest.BasePath, base))
		must(t, d.world.AddBitmap(base, "template"))
		must(t, d.world.Remove(srcPath))
		must(t, d.world.CreateOverlay(srcPath, hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: base}, testSize))
		v := &d.world.Registry.Vol
		v.Location.Backing = api.NewBacking([]api.BaseImage{{Path: base, Format: api.FormatQcow2}})
		v.Attachments[0].Location = v.Location
		must(t, d.world.Start(testInstance))
		_, err := d.manager().Plan(t.Context(), testVolume, mirrorToNewPool)
		if api.CodeOf(err) != api.CodeUnsupportedDisk || !strings.Contains(err.Error(), base+` has the dirty bitmap "template"`) {
			t.Errorf("the plan of a mirror: %v", err)
		}
		mig := d.until(d.migrate(), api.MigrationCompleted)
		d.bitmapsAt(mig.Dst.Path)
	})
}

func TestALayoutThatTheDestinationDoesNotGetIsSaid(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"file": migratetest.Qcow2World, "existing device": migratetest.DeviceWorld} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, world, hv.StateStopped, func(t *testing.T, d *daemon) {
				d.world.Images.Layout = []string{"cluster_size=1048576", "lazy_refcounts=on"}
				target := toNewPool
				if name == "existing device" {
					target = d.world.To
				}
				plan, err := d.manager().Plan(t.Context(), testVolume, target)
				must(t, err)
				mig := d.until(d.migrateTo(target), api.MigrationCompleted)
				for _, said := range []string{plan.Warning, mig.Remark} {
					if !strings.Contains(said, "cluster_size=1048576,lazy_refcounts=on") {
						t.Errorf("the layout of the source is not in %q", said)
					}
				}
			})
		})
	}
}
