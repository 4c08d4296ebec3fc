// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// ofClones runs a test on worlds with a linked clone. Its base image must not change.
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
		must(t, d.world.Fake.SetFull(migratetest.BasePath, true)) // any write to it fails
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", KeepBase: true, DeleteSource: true}), api.MigrationCompleted)
		if mig.Src.Backing == "" || mig.Dst.Backing != mig.Src.Backing || mig.Dst.Format != api.FormatQcow2 {
			t.Errorf("moved from %+v to %+v", mig.Src, mig.Dst)
		}
		d.isOn(t, hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: mig.Dst.Path}, hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: migratetest.BasePath})
		if at := d.world.Registry.CurrentVolume().Location; at != mig.Dst {
			t.Errorf("the registry has the volume at %+v", at)
		}
		if w, err := d.manager().Which.Find(context.Background(), d.world.Registry.CurrentVolume()); err != nil || !w.Agree || len(w.Authoritative) != 2 {
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

// isOn checks that the disk is on this chain, with all writes of its guest.
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

// slowComplete begins the complete of a move that keeps the base images, with a job that makes no
// progress until it is stepped, and returns once the job runs.
func slowComplete(t *testing.T, d *daemon) api.Migration {
	t.Helper()
	mig := d.copied()
	for range 40 {
		d.world.GuestWrites()
	}
	d.world.SetQuiet()
	d.world.SetStep(0)
	d.completes(mig)
	for !slices.Contains(d.world.Calls(), "BlockCopy") {
		pass(10 * time.Millisecond)
		synctest.Wait()
	}
	return mig
}

func TestAGuestThatOutrunsTheCopyOfItsCloneIsSlowedDownAndNotPaused(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := slowComplete(t, d)
		pass(move.CommitBound + move.CommitBound/2)
		if n := d.world.WriteLimit(testInstance, "vda"); n != blockjob.ThrottleBytesPerSecond {
			t.Errorf("the guest's writes are limited to %d, want %d", n, blockjob.ThrottleBytesPerSecond)
		}
		d.stillRunning()
		if words := d.get(mig.ID).Pacing; !strings.Contains(words, "may write "+humanize.Bytes(blockjob.ThrottleBytesPerSecond)+" per second") {
			t.Errorf("of the guest that is slowed it says %q", words)
		}
		d.wantPacing(mig.ID, move.PacingKind{Doing: "throttles_guest"})
		d.world.SetStep(2)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		if n := d.world.WriteLimit(testInstance, "vda"); n != 0 {
			t.Errorf("the guest's writes are still limited, to %d", n)
		}
	})
}

func TestACopyOfACloneThatGetsNowhereIsGivenUpWithoutAPause(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := slowComplete(t, d)
		pass(3 * move.CommitBound)
		d.stillRunning()
		if e := d.get(mig.ID).Error; e == nil || !strings.Contains(e.Message, "does not catch up") {
			t.Errorf("the complete has %v, want the reason", e)
		}
		if n := d.world.WriteLimit(testInstance, "vda"); n != 0 {
			t.Errorf("the guest's writes are still limited, to %d", n)
		}
		if slices.Contains(d.world.Calls(), "Suspend") {
			t.Error("the guest was suspended for a copy that gets nowhere")
		}
		d.world.SetStep(2)
		_, _, err := d.manager().Cancel(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAQEMUThatSkipsZerosDoesNotCopyAClone(t *testing.T) {
	to := api.MigrationTarget{ToPool: "new", KeepBase: true}
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		synctest.Test(t, func(t *testing.T) {
			d := newDaemon(t, migratetest.KeepBaseWorld(t, hv.StateStopped))
			d.world.SetAbout(hv.About{QEMU: hv.Version{Major: 9, Minor: 1}})
			if state == hv.StateStopped {
				d.until(d.migrateTo(to), api.MigrationCompleted)
				return
			}
			must(t, d.world.Start(testInstance))
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: to})
			if api.CodeOf(err) != api.CodeUnsupportedDisk {
				t.Errorf("got %v, want %s", err, api.CodeUnsupportedDisk)
			}
		})
	}
}

func TestAGuestThatIsStartedInAQEMUThatSkipsZerosGetsNoCopyOfItsClone(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.SetAbout(hv.About{QEMU: hv.Version{Major: 9, Minor: 1}})
		must(t, d.world.Start(testInstance))
		complete := func() string {
			_, id, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(t, err)
			return id
		}
		if refused := d.ended(complete()); refused == nil || refused.Code != api.CodeUnsupportedDisk {
			t.Errorf("the complete ended with %v, want %s", refused, api.CodeUnsupportedDisk)
		}
		if slices.Contains(d.world.Calls(), "BlockCopy") {
			t.Error("a copy was begun")
		}
		must(t, d.world.Stop(testInstance))
		complete()
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestACloneWithSmallClustersNeedsRoomForTheLargerOnesOfItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, migratetest.KeepBaseWorld(t, hv.StateStopped))
		has, err := d.world.Images.AllocatedBytes(srcPath)
		must(t, err)
		d.world.Images.SmallClusterBytes = image.ClusterBytes / 4
		d.world.Images.Free.Store(4*has - 1)
		_, err = d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: filepath.Join(t.TempDir(), "clone.qcow2"), KeepBase: true}})
		if api.CodeOf(err) != api.CodeNoSpace || !strings.Contains(err.Error(), humanize.ExactBytes(4*has)) {
			t.Errorf("got %v, want %s for %d bytes", err, api.CodeNoSpace, 4*has)
		}
	})
}

// offAtItsName ends the guest after the pivot, with a definition that still names the overlay, and
// returns the complete that then continues.
func offAtItsName(d *daemon, then func()) api.Migration {
	d.t.Helper()
	mig := d.copied()
	before := d.definition()
	d.when("name_dst_after_pivot", op.EventStarted, func() {
		must(d.t, d.world.Destroy(testInstance))
		d.world.Redefine(d.t, func(dom *hv.Domain) { dom.Config[0].Chain = before })
		then()
	})
	d.completes(mig)
	return mig
}

func (d *daemon) definition() []hv.Image {
	d.t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(d.t, err)
	return slices.Clone(dom.ConfigDisk("vda").Chain)
}

func TestAGuestThatEndsBehindThePivotIsOnDst(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := offAtItsName(d, func() {})
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestAnOverlayThatWasWrittenBehindThePivotIsKeptUntilTheOperatorHasDecided(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := offAtItsName(d, func() {
			d.world.OnStart = nil
			must(t, d.world.Start(testInstance))
			d.world.GuestWrites()
			must(t, d.world.Stop(testInstance))
		})
		d.until(mig.ID, api.MigrationNeedsOperator)
		if e := d.get(mig.ID).Error; !strings.Contains(e.Message, "either may have what the other lacks") || !d.world.Exists(overlayOf(mig)) {
			t.Errorf("it waits with %v, and the overlay is there: %t", e, d.world.Exists(overlayOf(mig)))
		}
		if err := d.manager().Monitor.NameStanding(context.Background(), testInstance); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("the definition was named after one of the two: %v", err)
		}
		// These are the steps of docs/how-to/recover.md, if the overlay is right.
		content, err := d.world.AuthoritativeContent(testInstance, "vda")
		must(t, err)
		for block, value := range content {
			must(t, d.world.WriteBlock(mig.Dst.Path, block, value))
		}
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

// libvirtd dies in the pivot of such a move after it has attached the base images, and refuses the
// pivot from then on: QEMU may still move to dst, so the guest must not be resumed.
func TestAGuestWhosePivotMayStillComeIsNotResumed(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Pivot", Nth: 1, Err: hv.ErrUnavailable})
		d.world.Inject(hvtest.Fault{Call: "Pivot", Nth: 2, Err: errors.New("Duplicate nodes with node-name='libvirt-9-storage'")})
		mig := d.untilItStands(d.migrateTo(d.world.To))
		if mig.State != api.MigrationNeedsOperator || !strings.Contains(mig.Error.Message, "must not be resumed") {
			t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
		}
		standsStill(t, d, mig)
		d.follow(mig)
		mig = d.untilItStands(mig.ID)
		d.moved(mig)
	})
}

// farBehind is a move that keeps the base images, after a failed complete with a job that is far
// behind the guest.
func farBehind(t *testing.T, d *daemon) api.Migration {
	t.Helper()
	d.world.Inject(hvtest.Fault{Call: "Suspend", Nth: 1, Err: errors.New("no")})
	mig := d.copied()
	_, id, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
	must(t, err)
	if refused := d.ended(id); refused == nil {
		t.Fatal("the complete was not refused")
	}
	must(t, d.world.SetBehind(testInstance, "vda", 1<<30))
	d.world.SetQuiet()
	return mig
}

func TestACancelPausesTheGuestForACopyOfItsCloneWhenThatHasCaughtUp(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := farBehind(t, d)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.SrcAttachmentID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed() // the fake reports if the job was ended too early
		if n := d.world.WriteLimit(testInstance, "vda"); n != 0 {
			t.Errorf("the guest's writes are still limited, to %d", n)
		}
	})
}

func TestACancelDoesNotPauseTheGuestForACopyOfItsCloneThatGetsNowhere(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := farBehind(t, d)
		d.world.SetStep(0)
		suspended := len(d.world.Calls())
		_, id, err := d.manager().Cancel(context.Background(), d.call(mig.SrcAttachmentID))
		must(t, err)
		pass(move.CommitBound + move.CommitBound/2)
		if n := d.world.WriteLimit(testInstance, "vda"); n != blockjob.ThrottleBytesPerSecond {
			t.Errorf("the guest's writes are limited to %d, want %d", n, blockjob.ThrottleBytesPerSecond)
		}
		if refused := d.ended(id); refused == nil || !strings.Contains(refused.Message, "does not catch up") {
			t.Errorf("the cancel ended with %v, want the reason", refused)
		}
		if n := d.world.WriteLimit(testInstance, "vda"); n != 0 {
			t.Errorf("the guest's writes are still limited, to %d", n)
		}
		if slices.Contains(d.world.Calls()[suspended:], "Suspend") {
			t.Error("the guest was suspended for a copy that gets nowhere")
		}
		must(t, d.world.Stop(testInstance)) // as the message says
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.SrcAttachmentID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

// The hook of the host does not work, and the instance is started at the moment its definition is
// changed to dst.
func TestAGuestThatIsStartedAsItsDefinitionIsToNameDstKeepsWhatItWrites(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := offAtItsName(d, func() {
			d.world.OnStart = nil
			d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Nth: 1, Do: func() { must(t, d.world.Start(testInstance)); d.world.GuestWrites() }})
		})
		d.until(mig.ID, api.MigrationNeedsOperator)
		if at := d.definition()[0].Path; at != overlayOf(mig) {
			t.Errorf("the guest runs on its overlay, and its definition names %s", at)
		}
		r := &hosttest.Recorder{}
		d.world.AssertNoWriteLost(r)
		for _, problem := range r.Problems {
			t.Error(problem)
		}
	})
}

// If the definition names the end of a background job before its pivot, another program has changed
// it, and it does not show where the guest was when it died.
func TestAnEndThatSomebodyElseHasNamedIsNoPivot(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.when("pivot", op.EventStarted, func() {
			must(t, d.world.Fake.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: mig.Dst.Path}, {Type: hv.SourceFile, Format: hvtest.Raw, Path: migratetest.BasePath}}))
			d.world.Inject(hvtest.Fault{Call: "Pivot", Nth: 1, Do: func() { must(t, d.world.Fake.Crash(testInstance)) }})
		})
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		completes, err := d.journal.Ops(context.Background(), move.KindComplete, false)
		cold := slices.DeleteFunc(completes, func(o op.Op) bool { return !o.Has("fold") })
		if err != nil || len(cold) != 1 {
			t.Errorf("the guest died before the pivot, and its overlay was folded %d times (%v), want once", len(cold), err)
		}
	})
}

// The daemon dies after it changed the definition of a guest that is off to dst, with the guard
// still set.
func TestADaemonThatDiesAsItNamesDstLeavesNoGuard(t *testing.T) {
	inBubbleOn(t, migratetest.KeepBaseWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := offAtItsName(d, func() {
			d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Nth: 1, After: true, Do: func() { d.Restarts.Go(d.Restart) }})
		})
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		if guarded, err := d.world.Guards.Has(testInstance, "migration "+mig.ID); err != nil || guarded {
			t.Errorf("the instance may not start: guarded %t, %v", guarded, err)
		}
		d.world.OnStart = nil
		must(t, d.world.Start(testInstance))
	})
}
