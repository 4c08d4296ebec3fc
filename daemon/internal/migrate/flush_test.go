// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// endByHand brings a migration to its end, call by call, by a complete or a cancel. It returns the
// migration and the changes of images, in order, before the removal of the overlay, and after the
// pivot if there was one.
func (d *daemon) endByHand(cancel bool) (mig api.Migration, done []string) {
	d.t.Helper()
	ctx := context.Background()
	pivoted := 0
	d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() {
		d.world.Images.Mu.Lock()
		defer d.world.Images.Mu.Unlock()
		pivoted = len(d.world.Images.Durable)
	}})
	if cancel {
		mig = d.begin(toNewPool)
		_, _, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(d.t, err)
		d.until(mig.ID, api.MigrationCancelled)
	} else {
		mig = d.copied()
		complete := d.call(mig.ID)
		complete.DstAttachmentID = mig.DstAttachmentID
		_, _, err := d.manager().Complete(ctx, complete)
		must(d.t, err)
		d.until(mig.ID, api.MigrationCompleted)
	}
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	log := d.world.Images.Durable
	gone := slices.IndexFunc(log, func(s string) bool { return strings.HasPrefix(s, "remove /overlays/") })
	if gone < pivoted {
		d.t.Fatalf("%v: the overlay was not removed, or before the pivot (%d)", log, pivoted)
	}
	return mig, slices.Clone(log[pivoted:gone])
}

// With cache='unsafe' QEMU does not flush: the images that the end of a fold replaces are kept
// until the daemon has flushed the end. A flush before the pivot, which only shortens the pause,
// does not include later writes.
func TestTheEndIsFlushedBetweenThePivotAndTheRemovalOfTheOverlay(t *testing.T) {
	for _, back := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig, done := d.endByHand(back)
			end := mig.Dst.Path
			if back {
				end = srcPath
			}
			if !slices.Contains(d.world.Calls(), "Pivot") {
				t.Fatal("there was no pivot")
			}
			if !slices.Contains(done, "flush "+end) {
				t.Errorf("back %t: %v, want a flush of %s between the pivot and the removal of the overlay", back, done, end)
			}
		})
	}
}

// loses makes the next flush of an image fail, once, and loses the writes since the flush before.
func (d *daemon) loses(path string) {
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	d.world.Images.FlushFails = func(flushed string) error {
		if flushed != path {
			return nil
		}
		return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO}
	}
}

// lost returns how many blocks were lost so.
func (d *daemon) lost() int {
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	return d.world.Images.Lost
}

// unsafely makes worlds with a guest that has cache='unsafe', and has written to its overlay before
// a complete.
func unsafely(world func(*testing.T, hv.State) *migratetest.World) func(*testing.T, hv.State) *migratetest.World {
	return func(t *testing.T, state hv.State) *migratetest.World {
		w := world(t, state)
		must(t, w.SetCache(testInstance, "vda", hv.CacheUnsafe))
		return w
	}
}

func (d *daemon) writesALot() {
	for range 20 {
		d.world.GuestWrites()
	}
	d.world.SetQuiet()
}

// losesInPause makes the guest write as it is paused, and the job's target lose those writes.
func (d *daemon) losesInPause(path string) {
	d.world.Inject(hvtest.Fault{Call: "Suspend", Do: func() {
		d.world.Mu.Lock()
		d.world.Quiet = false
		d.world.Mu.Unlock()
		d.world.GuestWrites()
		d.world.SetQuiet()
		d.loses(path)
	}})
}

func (d *daemon) calls(name string) (n int) {
	for _, c := range d.world.Calls() {
		if c == name {
			n++
		}
	}
	return n
}

// failsToStore waits until a call has failed because of the failed flush.
func (d *daemon) failsToStore(id string, state api.MigrationState) {
	d.t.Helper()
	for range 600 {
		if now := d.get(id); now.State == state && now.Error != nil {
			if now.Error.Code != api.CodeIOError || d.lost() == 0 {
				d.t.Errorf("%v, with %d blocks lost", now.Error, d.lost())
			}
			return
		}
		pass(100 * time.Millisecond)
	}
	d.t.Fatalf("the migration is %s, want %s with an error", d.get(id).State, state)
}

var liveFolds = map[string]func(*testing.T, hv.State) *migratetest.World{"a volume": migratetest.NewWorld, "a clone that keeps its base": migratetest.KeepBaseWorld}

// Linux reports lost writes once: the next flush succeeds.
func TestAnEndThatCouldNotStoreTheFoldIsWrittenByAnotherJobWhenCalledAgain(t *testing.T) {
	for name, world := range liveFolds {
		for when, restart := range map[string]bool{"": false, " after a restart": true} {
			for moment, inPause := range map[string]bool{"before the pause": false, "in the pause": true} {
				t.Run(name+", "+moment+when, func(t *testing.T) {
					inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
						mig := d.copied()
						d.writesALot()
						if inPause {
							d.losesInPause(mig.Dst.Path)
						} else {
							d.loses(mig.Dst.Path)
						}
						d.completes(mig)
						d.failsToStore(mig.ID, api.MigrationCopied)
						d.stillRunning()
						if n := d.calls("Pivot"); n > 0 || !inPause && d.calls("Suspend") > 0 {
							t.Errorf("%v", d.world.Calls())
						}
						if restart {
							d.Restart()
						}
						now := d.until(d.completes(mig), api.MigrationCompleted)
						if begun, ended := d.calls("BlockCopy"), d.calls("AbortJob"); begun != 2 || ended != 1 {
							t.Errorf("%d jobs were begun and %d ended, want 2 and 1", begun, ended)
						}
						d.moved(now)
					})
				})
			}
		}
	}
}

// The job continues until it is ended, and Linux reports its lost writes at the next flush.
func TestWhatTheJobLosesAfterItsFlushHasFailedDoesNotRefuseTheNextCall(t *testing.T) {
	for name, world := range liveFolds {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.writesALot()
				d.loses(mig.Dst.Path)
				d.completes(mig)
				d.failsToStore(mig.ID, api.MigrationCopied)
				d.loses(mig.Dst.Path)
				now := d.until(d.completes(mig), api.MigrationCompleted)
				d.moved(now)
			})
		})
	}
}

// The result of the flush during the daemon's death is unknown.
func TestADaemonThatDiesInTheFlushOfAnEndHasAnotherJobWriteIt(t *testing.T) {
	for _, step := range []string{"pause", "drain"} {
		for name, world := range liveFolds {
			t.Run(step+" "+name, func(t *testing.T) {
				inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.writesALot()
					d.when(step, op.EventNoted, func() {
						d.diesWhile(func() { d.world.FailSync(mig.Dst.Path) })
					})
					now := d.until(d.completes(mig), api.MigrationCompleted)
					if begun, ended := d.calls("BlockCopy"), d.calls("AbortJob"); begun != 2 || ended != 1 {
						t.Errorf("%d jobs were begun and %d ended, want 2 and 1", begun, ended)
					}
					d.moved(now)
				})
			})
		}
	}
}

func TestASourceThatCouldNotStoreTheCommitIsWrittenByAnotherJobWhenCancelledAgain(t *testing.T) {
	for moment, inPause := range map[string]bool{"before the pause": false, "in the pause": true} {
		t.Run(moment, func(t *testing.T) {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				d.writesALot()
				if inPause {
					d.losesInPause(srcPath)
				} else {
					d.world.Inject(hvtest.Fault{Call: "CommitActive", After: true, Do: func() { d.loses(srcPath) }})
				}
				d.cancels(mig.ID)
				d.failsToStore(mig.ID, api.MigrationCancelling)
				d.stillRunning()
				if d.calls("Pivot") > 0 {
					t.Errorf("%v", d.world.Calls())
				}
				d.until(d.cancels(mig.ID), api.MigrationCancelled)
				if begun := d.calls("CommitActive"); begun != 2 {
					t.Errorf("%d commits were begun, want 2", begun)
				}
				d.stayed()
			})
		})
	}
}

// QEMU flushes the end in the pivot, and so does a cancel right before it: with another cache mode
// that is the first report.
func TestASourceThatCouldNotStoreItsLastWritesIsNotPivotedToByTheSecondTry(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"cancel": migratetest.NewWorld, "complete": migratetest.KeepBaseWorld} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.writesALot()
				end, back := mig.Dst.Path, name == "cancel"
				if back {
					end = d.world.Src.Path
				}
				d.losesInPause(end)
				if back {
					d.cancels(mig.ID)
					d.failsToStore(mig.ID, api.MigrationCancelling)
				} else {
					d.completes(mig)
					d.failsToStore(mig.ID, api.MigrationCopied)
				}
				if d.calls("Pivot") > 0 {
					t.Errorf("%v", d.world.Calls())
				}
				d.ends(mig, back)
			})
		})
	}
}

// notProved makes a switch to an end that could not store its writes, which was found after the
// pivot.
func notProved(t *testing.T, d *daemon, cancel bool) (mig api.Migration, end string) {
	t.Helper()
	mig = d.copied()
	d.writesALot()
	end = mig.Dst.Path
	if cancel {
		end = srcPath
	}
	d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() {
		must(t, d.world.Touch(end))
		d.loses(end)
	}})
	if cancel {
		d.cancels(mig.ID)
	} else {
		d.completes(mig)
	}
	for d.get(mig.ID).State != api.MigrationNeedsOperator {
		if d.get(mig.ID).State.Final() {
			t.Fatalf("the migration is %s, and nothing proves what %s has", d.get(mig.ID).State, end)
		}
		pass(time.Second)
	}
	return d.get(mig.ID), end
}

func (d *daemon) callsAgain(mig api.Migration, cancel bool) api.Migration {
	if cancel {
		d.cancels(mig.ID)
	} else {
		d.completes(mig)
	}
	return d.untilItStands(mig.ID)
}

// After the pivot nothing can be written again: the old images are kept until a comparison has
// proved the end.
func TestAnEndWhoseFlushFailsBehindThePivotIsProvedByAComparison(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		for _, restart := range []bool{false, true} {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig, _ := notProved(t, d, cancel)
				if restart {
					d.Restart()
				}
				for range 2 { // with the guest running nothing can be compared
					if again := d.callsAgain(mig, cancel); again.State != api.MigrationNeedsOperator || again.Error.Code != api.CodeIOError {
						t.Fatalf("the migration is %s: %v", again.State, again.Error)
					}
				}
				if there := []bool{d.world.Exists(overlayOf(mig)), d.world.Exists(srcPath)}; !there[0] || !there[1] {
					t.Errorf("overlay and source are there: %v", there)
				}
				if len(d.world.Guards.Guarded()) == 0 {
					t.Error("the instance may be started while nobody knows what its disk has")
				}
				d.follow(mig)
				if cancel {
					d.stayed()
				} else {
					d.moved(mig)
				}
			})
		}
	}
}

// The flush after the pivot reports its failure to a daemon that dies, or that cannot note it.
func TestAnEndWhoseFlushBehindThePivotHasNoResultIsProvedByAComparison(t *testing.T) {
	for how, fails := range map[string]func(d *daemon, end string){
		"the daemon dies": func(d *daemon, end string) {
			d.when("settle", op.EventNoted, func() { d.diesWhile(func() { d.world.FailSync(end) }) })
		},
		"the journal is full": func(d *daemon, end string) {
			d.world.Images.FlushFails = func(path string) error {
				if path != end {
					return nil
				}
				d.journal.FailNext(false)
				return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO}
			}
		},
	} {
		for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"raw": migratetest.NewWorld, "qcow2": migratetest.Qcow2World} {
			t.Run(how+", "+name, func(t *testing.T) {
				inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.writesALot()
					end := mig.Dst.Path
					d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() {
						must(t, d.world.Touch(end))
						d.world.Images.Mu.Lock()
						defer d.world.Images.Mu.Unlock()
						fails(d, end)
					}})
					d.completes(mig)
					now := d.untilItStands(mig.ID)
					if now.State != api.MigrationNeedsOperator || now.Error.Code != api.CodeIOError || !d.world.Exists(overlayOf(mig)) {
						t.Fatalf("the migration is %s: %v; the overlay is there: %t", now.State, now.Error, d.world.Exists(overlayOf(mig)))
					}
					d.stillRunning()
					d.follow(now)
					d.moved(now)
				})
			})
		}
	}
}

// QEMU flushes what it writes in the pivot, and reports a failure itself.
func TestADaemonThatDiesInTheFlushBehindThePivotGoesOnIfQEMUFlushes(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.when("settle", op.EventStarted, func() { d.diesWhile(func() {}) })
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestAnEndThatLacksWhatItCouldNotStoreKeepsTheOverlayUntilItIsWrittenAgain(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
			mig, end := notProved(t, d, cancel)
			must(t, d.world.Stop(testInstance))
			// As if the pages had been dropped.
			content, err := d.world.Read([]hv.Image{{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: overlayOf(mig)}})
			must(t, err)
			for block := range content {
				must(t, d.world.WriteBlock(end, block, 0))
				break
			}
			mig = d.callsAgain(mig, cancel)
			if mig.State != api.MigrationNeedsOperator || !strings.Contains(mig.Error.Message, "do not read the same") || !d.world.Exists(overlayOf(mig)) {
				t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
			}
			// These are the steps of docs/how-to/recover.md, if the overlay is right.
			for block, value := range content {
				must(t, d.world.WriteBlock(end, block, value))
			}
			d.ends(mig, cancel)
		})
	}
}

// The result of the flush during the daemon's death is unknown.
func TestADaemonThatDiesInTheFlushOfASourceDoesNotMoveItUnasked(t *testing.T) {
	for _, step := range []string{"switch_to_overlay", "verify_frozen"} {
		t.Run(step, func(t *testing.T) {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				d.writesALot()
				d.world.Inject(hvtest.Fault{Call: "Snapshot", After: true, Do: func() { must(t, d.world.Touch(srcPath)) }})
				d.when(step, op.EventNoted, func() { d.diesWhile(func() {}) })
				id := d.migrate()
				for {
					now := d.untilItStands(id)
					if now.State.Final() {
						if now.State == api.MigrationCompleted || now.Error == nil || now.Error.Code != api.CodeIOError {
							t.Errorf("the migration is %s: %v", now.State, now.Error)
						}
						break
					}
				}
				if on := d.instance().LiveDisk("vda").Top().Path; on != srcPath {
					t.Errorf("the guest is on %s", on)
				}
				d.until(d.migrate(), api.MigrationCompleted) // asked again
			})
		})
	}
}

// Only the flush before the snapshot and the flush of the seal report what src could not store.
func TestASourceThatCouldNotStoreWhatTheGuestWroteIsNotMovedUnasked(t *testing.T) {
	for moment, call := range map[string]string{"before the snapshot": "", "behind it": "Snapshot"} {
		t.Run(moment, func(t *testing.T) {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				d.writesALot()
				if call == "" {
					d.loses(srcPath)
				} else {
					d.world.Inject(hvtest.Fault{Call: call, After: true, Do: func() {
						must(t, d.world.Touch(srcPath))
						d.loses(srcPath)
					}})
				}
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
				must(t, err)
				var now api.Migration
				for !now.State.Final() {
					pass(time.Second)
					all, err := d.manager().List(context.Background(), true)
					must(t, err)
					now = all[0]
				}
				if now.State == api.MigrationCompleted || now.Error == nil || now.Error.Code != api.CodeIOError {
					t.Errorf("the migration is %s: %v", now.State, now.Error)
				}
				if on := d.instance().LiveDisk("vda").Top().Path; on != srcPath {
					t.Errorf("the guest is on %s", on)
				}
			})
		})
	}
}
