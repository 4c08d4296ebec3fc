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

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

const otherPath = "/old/other.raw"

// when runs happen once a step, or its undo, has begun.
func (d *daemon) when(step string, kind op.EventKind, happen func()) {
	d.journal.AfterAppend(func(r op.Record) {
		if r.Step == step && r.Kind == kind {
			d.journal.AfterAppend(nil)
			happen()
		}
	})
}

// editedToOther simulates a foreign virsh edit to an unknown image.
func (d *daemon) editedToOther() {
	d.t.Helper()
	if !d.world.Exists(otherPath) {
		must(d.t, d.world.CreateImage(otherPath, hvtest.Raw, testSize))
	}
	edit(d.t, d, otherPath)
}

// runsAndIsOff starts the guest, lets it write, and shuts it down.
func (d *daemon) runsAndIsOff() {
	d.t.Helper()
	must(d.t, d.world.Start(testInstance))
	for range 5 {
		d.world.GuestWrites()
	}
	must(d.t, d.world.Stop(testInstance))
}

// keepsDefinition gives the operator a copy of the definition from before the move.
func (d *daemon) keepsDefinition(t *testing.T) {
	t.Helper()
	old, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(t, err)
	old.Config[0].Chain = []hv.Image{rawImage(srcPath)}
	d.operator().Keep("./web.xml", *old)
}

// standstill is a situation that makes a migration wait for the operator.
type standstill struct {
	state hv.State
	// bring produces it, and returns the id of the migration.
	bring func(t *testing.T, d *daemon) string
	// end is the state of the migration after the commands of its error were run. A copied
	// migration is then completed.
	end api.MigrationState
}

var running, stopped = hv.StateRunning, hv.StateStopped

var standstills = map[string]standstill{
	"an edit before the switch to the overlay": {running, func(_ *testing.T, d *daemon) string {
		d.when("switch_to_overlay", op.EventStarted, d.editedToOther)
		return d.migrate()
	}, api.MigrationError},
	"an edit while the daemon is dead in the switch to the overlay": {running, func(_ *testing.T, d *daemon) string {
		d.when("switch_to_overlay", op.EventStarted, func() {
			d.world.Disconnect()
			go d.RestartAfter(func() {
				d.world.Reconnect()
				d.editedToOther()
			})
		})
		return d.migrate()
	}, api.MigrationError},
	"a guest that ran on the overlay of a start that is undone": {running, func(t *testing.T, d *daemon) string {
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Err: hv.ErrUnsupported})
		d.when("name_overlay", op.EventUndoStarted, func() {
			must(t, d.world.Destroy(testInstance))
			d.runsAndIsOff()
		})
		return d.migrate()
	}, api.MigrationError},
	"a snapshot that lands behind its undo": {running, func(t *testing.T, d *daemon) string {
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Err: hv.ErrUnsupported})
		d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Nth: 2, After: true, Do: func() {
			all, err := d.manager().List(context.Background(), true)
			must(t, err)
			must(t, d.world.Fake.PutOverlay(context.Background(), testInstance, "vda", overlayChainOf(all[0])[0]))
			must(t, d.world.Fake.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(srcPath)})) // as the undo had it
		}})
		return d.migrate()
	}, api.MigrationError},
	"a guest that ran on the destination of a switch that is undone": {running, func(t *testing.T, d *daemon) string {
		return d.undoesSwitch(func() {
			must(t, d.world.Destroy(testInstance))
			d.runsAndIsOff()
		})
	}, api.MigrationCopied},
	"a guest that ran on the destination of a switch that is undone, and the first copy back is cut off": {running, func(t *testing.T, d *daemon) string {
		d.operator().CutOff = 1
		return d.undoesSwitch(func() {
			must(t, d.world.Destroy(testInstance))
			d.runsAndIsOff()
		})
	}, api.MigrationCopied},
	"a guest that runs on the destination of a switch that is undone": {running, func(t *testing.T, d *daemon) string {
		return d.undoesSwitch(func() {
			must(t, d.world.Destroy(testInstance))
			must(t, d.world.Start(testInstance))
		})
	}, api.MigrationCopied},
	"a guest that ran on the destination of a switch that is undone, once that was compared, where no hook is": {running, func(t *testing.T, d *daemon) string {
		d.world.OnStart = nil
		return d.undoesSwitch(func() {
			must(t, d.world.Destroy(testInstance))
			d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Do: d.runsAndIsOff})
		})
	}, api.MigrationCopied},
	"a guest that somebody resumes in a switch that is undone, dies, and runs on the destination": {running, func(t *testing.T, d *daemon) string {
		return d.undoesSwitch(func() {
			must(t, d.world.ResumeByUser(testInstance))
			d.world.GuestWrites()
			must(t, d.world.Destroy(testInstance))
			d.runsAndIsOff()
		})
	}, api.MigrationCopied},
	"an edit in a switch that is undone, of a guest that dies": {running, func(t *testing.T, d *daemon) string {
		return d.undoesSwitch(func() {
			must(t, d.world.Destroy(testInstance))
			d.editedToOther()
		})
	}, api.MigrationCopied},
	"a guest that was resumed in the switch before a power cut": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
			d.diesWhile(func() {
				must(t, d.world.ResumeByUser(testInstance))
				d.world.GuestWrites()
				must(t, d.world.HostReboot())
			})
		}})
		return d.completes(mig)
	}, api.MigrationCompleted},
	"an edit in the pivot of a guest that dies": {running, func(t *testing.T, d *daemon) string {
		mig, _ := parked(t, d)
		return mig.ID
	}, api.MigrationCompleted},
	"an edit as the complete settles": {running, func(_ *testing.T, d *daemon) string {
		d.when("settle", op.EventStarted, d.editedToOther)
		return d.migrate()
	}, api.MigrationCompleted},
	"an edit as the complete settles, of a guest that goes off": {running, func(t *testing.T, d *daemon) string {
		d.when("settle", op.EventStarted, func() {
			d.editedToOther()
			must(t, d.world.Stop(testInstance))
		})
		return d.migrate()
	}, api.MigrationCompleted},
	"an edit as the cancel settles": {running, func(_ *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("settle", op.EventStarted, d.editedToOther)
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"a virsh undefine as the complete settles": {running, func(t *testing.T, d *daemon) string {
		d.when("settle", op.EventStarted, func() { undefine(t, d) })
		return d.migrate()
	}, api.MigrationCompleted},
	"a virsh detach-disk --config as the complete settles": {running, func(t *testing.T, d *daemon) string {
		d.when("settle", op.EventStarted, func() { detach(hv.Config)(t, d) })
		return d.migrate()
	}, api.MigrationCompleted},
	"a virsh detach-disk --config as the complete settles, of a guest that goes off": {running, func(t *testing.T, d *daemon) string {
		d.keepsDefinition(t)
		d.when("settle", op.EventStarted, func() {
			detach(hv.Config)(t, d)
			must(t, d.world.Stop(testInstance))
		})
		return d.migrate()
	}, api.MigrationCompleted},
	"an edit before the overlay is removed": {running, func(_ *testing.T, d *daemon) string {
		d.when("remove_overlay", op.EventStarted, d.editedToOther)
		return d.migrate()
	}, api.MigrationCompleted},
	"an edit before the source is deleted": {running, func(_ *testing.T, d *daemon) string {
		d.when("release_source", op.EventStarted, d.editedToOther)
		return d.migrateTo(api.MigrationTarget{ToPool: "new", DeleteSource: true})
	}, api.MigrationCompleted},
	"another instance with the source that is to be deleted": {running, func(t *testing.T, d *daemon) string {
		d.when("release_source", op.EventStarted, func() { d.world.DefineOn(t, srcPath) })
		return d.migrateTo(api.MigrationTarget{ToPool: "new", DeleteSource: true})
	}, api.MigrationCompleted},
	"a guest that was started on the overlay behind the pivot of a cancel": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("name_src", op.EventStarted, func() {
			must(t, d.world.Destroy(testInstance))
			must(t, d.world.Fake.SetConfigChain(context.Background(), testInstance, "vda", overlayChainOf(mig)))
			must(t, d.world.Start(testInstance))
		})
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"a guest that ran on the overlay behind the pivot of a cancel": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("name_src", op.EventStarted, func() {
			must(t, d.world.Destroy(testInstance))
			must(t, d.world.Fake.SetConfigChain(context.Background(), testInstance, "vda", overlayChainOf(mig)))
			d.runsAndIsOff()
		})
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"an edit that names the destination that is to be removed": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("remove_destination", op.EventStarted, func() { edit(t, d, mig.Dst.Path) })
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"another instance with the destination that is to be removed": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("remove_destination", op.EventStarted, func() { d.world.DefineOn(t, mig.Dst.Path) })
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"a process that has the destination open, of which libvirt knows nothing": {running, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.when("remove_destination", op.EventStarted, func() {
			ctx := context.Background()
			must(t, d.world.CreateImage(otherPath, hvtest.Raw, testSize))
			d.world.DefineOn(t, otherPath)
			must(t, d.world.Start(testSrcAtt))
			must(t, d.world.Fake.GoStale(testSrcAtt))
			must(t, d.world.Fake.BlockCopy(ctx, testSrcAtt, "vda", rawImage(mig.Dst.Path), hv.BlockCopyOptions{}))
		})
		return d.cancels(mig.ID)
	}, api.MigrationCancelled},
	"a domain that is undefined in a fold": {stopped, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.keepsDefinition(t)
		d.when("fold", op.EventStarted, func() { undefine(t, d) })
		return d.completes(mig)
	}, api.MigrationCompleted},
	"a domain that is undefined as its definition is to name the destination": {stopped, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.keepsDefinition(t)
		d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Do: func() { undefine(t, d) }})
		return d.completes(mig)
	}, api.MigrationCompleted},
	"a guest that was started on the source in a fold, where no hook is": {stopped, func(t *testing.T, d *daemon) string {
		mig := d.copied()
		d.world.OnStart = nil
		d.world.Inject(hvtest.Fault{Call: "SetConfigChain", After: true, Do: func() {
			edit(t, d, srcPath)
			d.world.SetQuiet() // its writes there do not count
			must(t, d.world.Start(testInstance))
			edit(t, d, mig.Dst.Path)
		}})
		return d.completes(mig)
	}, api.MigrationCompleted},
}

// After any change of the instance by another program, an operator who runs the commands of the
// error, and repeats the call, brings the migration to its end, with all writes of the guest.
func TestTheCommandsOfEachStandstillBringTheMigrationToItsEnd(t *testing.T) {
	for name, c := range standstills {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.state, func(t *testing.T, d *daemon) {
				id := c.bring(t, d)
				mig := d.untilItStands(id)
				if mig.State != api.MigrationNeedsOperator {
					t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
				}
				for range 3 { // a second error may follow the first
					d.nothingLost()
					d.follow(mig)
					if mig = d.untilItStands(id); mig.State != api.MigrationNeedsOperator {
						break
					}
				}
				d.endedAs(mig, c.end)
			})
		})
	}
}

// nothingLost fails the test if a running guest lacks a write. The chain for the next start of a
// guest that is off may be the problem under test.
func (d *daemon) nothingLost() {
	d.t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	if err != nil || !dom.State.Active() {
		return
	}
	r := &hosttest.Recorder{}
	d.world.AssertNoWriteLost(r)
	for _, err := range r.Problems {
		d.t.Error(err)
	}
}

// undoesSwitch completes a move with a pivot that libvirt refuses, and runs happen as the undo
// begins to change the definition back. It returns the id of the migration.
func (d *daemon) undoesSwitch(happen func()) string {
	d.t.Helper()
	mig := d.copied()
	d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported})
	d.when("name_dst", op.EventUndoStarted, happen)
	return d.completes(mig)
}

func (d *daemon) endedAs(mig api.Migration, end api.MigrationState) {
	d.t.Helper()
	if mig.State != end {
		d.t.Fatalf("the migration is %s in the end, want %s: %v", mig.State, end, mig.Error)
	}
	switch end {
	case api.MigrationCopied:
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	case api.MigrationCompleted:
		if mig.DeleteSource {
			if d.world.Exists(srcPath) {
				d.t.Error("the source is left")
			}
			must(d.t, d.world.CreateImage(srcPath, hvtest.Raw, testSize)) // otherwise moved counts it as lost
		}
		d.moved(mig)
	default:
		d.stayed()
	}
}

// An unknown user is left to the operator, and the same call then continues.
func TestAFilesystemThatIsMendedLetsTheSourceBeDeleted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		away, path := filepath.Join(t.TempDir(), "away"), filepath.Join(t.TempDir(), "vol.raw")
		must(t, os.Symlink(strings.Repeat("x", 300), away)) // no filesystem can look that up
		d.until(d.migrateTo(api.MigrationTarget{ToPath: path}), api.MigrationCompleted)
		must(t, os.WriteFile(path, nil, 0o600)) // not the same file as away, if that can be checked
		d.when("release_source", op.EventStarted, func() {
			other := []api.Volume{{ID: uuid.NewString(), Name: "free", Host: testHost, Location: api.Location{Path: away, Format: api.FormatRaw}}}
			d.world.Registry.With(func() { d.world.Registry.Others = other })
		})
		mig := d.untilItStands(d.migrateTo(api.MigrationTarget{ToPool: "new", DeleteSource: true}))
		if mig.State != api.MigrationNeedsOperator || !strings.Contains(mig.Error.Message, away) || !strings.Contains(mig.Error.Message, "call again") {
			t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
		}
		must(t, os.Remove(away))
		d.types(mig.CompleteCommand())
		if mig = d.untilItStands(mig.ID); mig.State != api.MigrationCompleted || d.world.Exists(path) {
			t.Errorf("the migration is %s (%v), the source is there: %t", mig.State, mig.Error, d.world.Exists(path))
		}
		d.moved(mig)
	})
}

// libvirt has lost the guest, and the guest was then undefined.
func TestTheProcessOfAnUndefinedGuestIsEndedBeforeAnythingIsReleased(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		var wrote map[int64]uint64
		d.when("publish_completed", op.EventStarted, func() {
			d.world.SetQuiet()
			var err error
			wrote, err = d.world.Acknowledged(testInstance, "vda")
			must(t, err)
			must(t, d.world.Fake.Lose(testInstance))
			must(t, d.world.Undefine(testInstance))
		})
		mig := d.untilItStands(d.migrate())
		if d.world.Registry.CurrentVolume().MigrationID == "" {
			t.Error("the lock was given back under a process that has the volume")
		}
		d.follow(mig)
		mig = d.untilItStands(mig.ID)
		got, err := d.world.ReadImage(mig.Dst.Path)
		must(t, err)
		for block, value := range wrote {
			if got[block] != value {
				t.Errorf("block %d is %d at the destination, and the guest wrote %d", block, got[block], value)
			}
		}
		if at := d.world.Registry.CurrentVolume().Location.Path; at != mig.Dst.Path {
			t.Errorf("the registry has the volume at %s: %s, %v", at, mig.State, mig.Error)
		}
	})
}

// Between two calls no op waits, and the next call is refused.
func TestTheCommandsOfARefusalForAnInstanceThatIsNotDefinedLetTheMoveGoOn(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			mig := d.copied()
			d.keepsDefinition(t)
			undefine(t, d)
			call, end := (*Manager).Complete, api.MigrationCompleted
			if cancel {
				call, end = (*Manager).Cancel, api.MigrationCancelled
			}
			ask := func() error {
				_, _, err := call(d.manager(), context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
				return err
			}
			refused := ask()
			if api.CodeOf(refused) != api.CodeNeedsOperator {
				t.Fatalf("%v, want needs_operator", refused)
			}
			d.types(hosttest.CommandsIn(refused.Error())...)
			must(t, ask())
			d.endedAs(d.until(mig.ID, end), end)
		})
	}
}

// A caller of another call learns how to end the waiting op.
func TestACallThatIsRefusedForAStandstillNamesTheCommandsThatEndIt(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.when("settle", op.EventStarted, d.editedToOther)
		mig := d.untilItStands(d.migrate())
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		if api.CodeOf(err) != api.CodeNeedsOperator {
			t.Fatalf("%v, want needs_operator", err)
		}
		d.types(hosttest.CommandsIn(err.Error())...)
		d.endedAs(d.untilItStands(mig.ID), api.MigrationCompleted)
	})
}

// In a cancel another program pivots first (virsh blockjob --pivot): the guest is where the cancel
// would bring it, and no operator is needed.
func TestACommitOfACancelThatSomebodyPivotsEndsTheCancel(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.SetStep(0)
		d.cancels(mig.ID)
		pass(time.Second)
		d.world.Step(testBlocks)
		must(t, d.world.Fake.Pivot(context.Background(), testInstance, "vda"))
		d.world.SetStep(2)
		got := d.untilItStands(mig.ID)
		if !got.State.Final() {
			d.cancels(mig.ID)
			got = d.untilItStands(mig.ID)
		}
		if got.State != api.MigrationCancelled {
			t.Fatalf("the migration is %s: %v", got.State, got.Error)
		}
		d.stayedBesides(overlayOf(mig), mig.Dst.Path)
	})
}

// Both images are equal in the pause, so no operator is needed if the guest dies while the switch
// is undone.
func TestAGuestThatDiesAsItsSwitchIsUndoneNeedsNobody(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported})
		d.when("name_dst", op.EventUndoStarted, func() { must(t, d.world.Destroy(testInstance)) })
		d.completes(mig)
		d.endedAs(d.untilItStands(mig.ID), api.MigrationCopied)
	})
}

// The guest ran on the overlay, and the definition was then changed back: its writes are only in
// the overlay.
func TestAnOverlayThatAGuestHasWrittenToIsKeptWhenItsStartIsUndone(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Err: hv.ErrUnsupported})
		d.when("name_overlay", op.EventUndoStarted, func() {
			must(t, d.world.Destroy(testInstance))
			d.runsAndIsOff()
			edit(t, d, srcPath)
		})
		mig := d.untilItStands(d.migrate())
		overlay := overlayOf(mig)
		if mig.State != api.MigrationNeedsOperator || !d.world.Exists(overlay) {
			t.Fatalf("the migration is %s (%v), and the overlay is there: %t", mig.State, mig.Error, d.world.Exists(overlay))
		}
		d.follow(mig)
		if mig = d.untilItStands(mig.ID); mig.State != api.MigrationError {
			t.Errorf("the migration is %s: %v", mig.State, mig.Error)
		}
		if kept, err := d.world.Info(overlay + ".kept"); err != nil || kept.Allocated == 0 {
			t.Errorf("the overlay that is kept has %d blocks (%v)", kept.Allocated, err)
		}
	})
}

// Writes of a guest between the comparison of both images and the change of the definition would be
// lost.
func TestNoGuestIsStartedWhileItsSwitchIsTakenBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported})
		d.when("name_dst", op.EventUndoStarted, func() {
			must(t, d.world.Destroy(testInstance))
			d.world.Inject(hvtest.Fault{Call: "SetConfigChain", Do: func() {
				if d.world.Start(testInstance) == nil {
					t.Error("the instance is started once both images were compared")
				}
			}})
		})
		d.completes(mig)
		mig = d.untilItStands(mig.ID)
		must(t, d.world.Start(testInstance))
		d.endedAs(mig, api.MigrationCopied)
	})
}

// The overlay may have the last flushed writes from before the power failure, and the destination
// has the guest's later writes.
func TestARepairNamesNoOverlayOnceTheGuestHasRunOnTheDestination(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.untilItStands(standstills["a guest that was resumed in the switch before a power cut"].bring(t, d))
		d.runsAndIsOff()
		if err := d.repair(context.Background()); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("the repair ends with %v, want chain_changed", err)
		}
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if path := dom.ConfigDisk("vda").Top().Path; path != mig.Dst.Path {
			t.Errorf("the definition names %s", path)
		}
	})
}

// offlineCopied is a copied migration with the instance kept off, on a host with a hook that does
// not work.
func (d *daemon) offlineCopied(t *testing.T) api.Migration {
	t.Helper()
	d.world.OnStart = nil
	must(t, d.world.Undefine(testInstance))
	must(t, d.world.Define(hv.Domain{ID: testInstance, Name: "web", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Serial: testVolume, Shareable: true, Terminated: true, Chain: []hv.Image{d.world.Src},
	}}}))
	mig := d.copied()
	if mig.Method != "offline" {
		t.Fatalf("the method is %s", mig.Method)
	}
	return mig
}

// The guest's writes to the source after the copy are not lost.
func TestASourceThatWasWrittenBeforeDstIsNamedIsNotLeft(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.offlineCopied(t)
		d.when("name_dst_while_off", op.EventStarted, d.runsAndIsOff)
		d.completes(mig)
		got := d.untilItStands(mig.ID)
		if got.State != api.MigrationCopied || got.Error == nil || got.Error.Code != api.CodeChainChanged {
			t.Errorf("the migration is %s: %v", got.State, got.Error)
		}
		if at := d.world.Registry.CurrentVolume().Location.Path; at != srcPath {
			t.Errorf("the volume is at %s", at)
		}
	})
}

// takenBack brings a complete of an offline migration to a standstill: it is taken back while the
// registry is unavailable, and the instance, which has the destination in its definition, was
// changed by happen.
func (d *daemon) takenBack(mig api.Migration, happen func()) api.Migration {
	d.t.Helper()
	d.when("publish_completed", op.EventStarted, func() {
		d.world.Registry.SetDown(true)
		happen()
	})
	d.completes(mig)
	pass(time.Second)
	go func() { _, _, _ = d.manager().Cancel(context.Background(), d.call(mig.ID)) }()
	pass(time.Second)
	d.world.Registry.SetDown(false)
	d.manager().Wake(false, true)
	if mig = d.untilItStands(mig.ID); mig.State != api.MigrationNeedsOperator {
		d.t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
	}
	return mig
}

// cancelledWithEveryWrite follows the errors until the migration is cancelled, and checks the
// guest's writes to the source.
func (d *daemon) cancelledWithEveryWrite(mig api.Migration) {
	d.t.Helper()
	for range 3 {
		d.follow(mig)
		if mig = d.untilItStands(mig.ID); mig.State != api.MigrationNeedsOperator {
			break
		}
	}
	if mig.State == api.MigrationCopied {
		d.cancels(mig.ID)
		mig = d.untilItStands(mig.ID)
	}
	if mig.State != api.MigrationCancelled {
		d.t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
	}
	content, err := d.world.ReadImage(srcPath)
	must(d.t, err)
	wrote, err := d.world.Acknowledged(testInstance, "vda")
	must(d.t, err)
	for block, value := range wrote {
		if content[block] != value {
			d.t.Errorf("block %d is %d, and the guest wrote %d", block, content[block], value)
		}
	}
}

func TestTheCommandsForAGuestThatRanOnADestinationThatIsTakenBackLoseNothing(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.cancelledWithEveryWrite(d.takenBack(d.offlineCopied(t), func() {
			must(t, d.world.Start(testInstance))
			for range 5 {
				d.world.GuestWrites()
			}
		}))
	})
}

// Its writes are only on the destination, so the definition must not name the source.
func TestARepairLeavesADestinationThatAGuestHasWrittenToInTheDefinition(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.takenBack(d.offlineCopied(t), d.runsAndIsOff)
		must(t, d.repair(context.Background()))
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if path := dom.ConfigDisk("vda").Top().Path; path != mig.Dst.Path {
			t.Errorf("the definition names %s", path)
		}
		d.cancelledWithEveryWrite(mig)
	})
}
