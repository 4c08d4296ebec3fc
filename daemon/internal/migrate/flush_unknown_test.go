// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// completesBy submits a complete as if the manager had seen the guest that way.
func (d *daemon) completesBy(way plans.Way, mig api.Migration) {
	d.t.Helper()
	ctx := context.Background()
	h, err := d.manager().History.Load(ctx, mig.ID)
	must(d.t, err)
	opID, planned := uuid.NewString(), d.manager().env.Plan(move.GoalComplete, way)
	_, err = d.manager().admission.Begin(ctx, opID, planned.Kind, &history.OpInput{Input: move.Input{Spec: h.Spec, RequestID: opID}, Planned: planned})
	must(d.t, err)
}

// notStoredYet is a migration after a failed complete, since dst could not store the job's writes.
// The job runs, and is ready.
func (d *daemon) notStoredYet() api.Migration {
	d.t.Helper()
	mig := d.copied()
	d.writesALot()
	d.loses(mig.Dst.Path)
	d.completes(mig)
	d.failsToStore(mig.ID, api.MigrationCopied)
	return mig
}

// The plan was chosen before the failed flush was known.
func TestAPlanThatBeginsNoOtherJobDoesNotGoOnWithOneThatDstCouldNotStore(t *testing.T) {
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
		way   plans.Way
	}{
		"a mirror":                 {migratetest.NewWorld, plans.Way{Method: move.MethodOverlay, Running: true}},
		"a copy in the background": {migratetest.KeepBaseWorld, plans.Way{Method: move.MethodOverlay, Running: true, Background: true}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(c.world), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.notStoredYet()
				d.completesBy(c.way, mig)
				now := d.until(mig.ID, api.MigrationCompleted) // by the plan that is chosen next
				if begun, ended := d.calls("BlockCopy"), d.calls("AbortJob"); begun != 2 || ended != 1 {
					t.Errorf("%d jobs were begun and %d ended, want 2 and 1", begun, ended)
				}
				d.moved(now)
			})
		})
	}
}

// The job has its old images open, whatever their paths have now.
func TestAJobThatIsReadyDoesNotHideThatAnImageWasReplaced(t *testing.T) {
	for which, code := range map[string]api.Code{"src": api.CodeChainChanged, "dst": api.CodeDstInUse} {
		t.Run(which, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.devices("")
				mig := d.copied()
				d.world.Inject(hvtest.Fault{Call: "Pivot", Err: errors.New("libvirt will not")})
				d.completes(mig)
				d.until(mig.ID, api.MigrationCopied)
				d.when("mirror", op.EventStarted, func() { d.devices(map[string]string{"src": srcPath, "dst": mig.Dst.Path}[which]) })
				suspended := d.calls("Suspend")
				d.completes(mig)
				now := d.untilItStands(mig.ID)
				if now.Error == nil || now.Error.Code != code || d.calls("Suspend") != suspended {
					t.Errorf("the migration is %s: %v", now.State, now.Error)
				}
				d.devices("")
				d.ends(mig, false)
			})
		})
	}
}

// QEMU flushes the end when it suspends its guest, and in the pivot. A process that ends does not
// report the results.
func TestAnEndOfWhichQEMUAloneCouldSayThatItLacksWritesIsCompared(t *testing.T) {
	for name, fails := range map[string]bool{"the flush fails": true, "it does not": false} {
		for when, restart := range map[string]bool{"": false, ", and the daemon dies": true} {
			t.Run(name+when, func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.writesALot()
					lost := 0
					d.writesInPause()
					d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
						if fails {
							lost = d.world.FailSync(mig.Dst.Path)
						}
						must(t, d.world.Crash(testInstance))
						if restart {
							go d.Restart()
						}
					}})
					now := d.untilItStands(d.completes(mig))
					if !fails {
						if now.State != api.MigrationCompleted {
							t.Fatalf("the migration is %s: %v", now.State, now.Error)
						}
						d.world.AssertNoWriteLost(t)
						return
					}
					if now.State != api.MigrationNeedsOperator || lost == 0 || !d.world.Exists(overlayOf(mig)) {
						t.Fatalf("the migration is %s (%v), with %d blocks lost", now.State, now.Error, lost)
					}
					if len(d.world.Guards.Guarded()) == 0 {
						t.Error("the instance may be started on what lacks a write")
					}
				})
			})
		}
	}
}

// writesInPause makes the guest write as it is paused.
func (d *daemon) writesInPause() {
	d.world.Inject(hvtest.Fault{Call: "Suspend", Do: func() {
		d.world.Mu.Lock()
		d.world.Quiet = false
		d.world.Mu.Unlock()
		d.world.GuestWrites()
		d.world.SetQuiet()
	}})
}

// An error while the op waits after the flush leaves the result known.
func TestARestartOfLibvirtBehindTheFlushOfAnEndLeavesItsJob(t *testing.T) {
	for name, target := range map[string]api.MigrationTarget{"overlay": toNewPool, "mirror": mirrorToNewPool} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				d.when("pause", op.EventNoted, func() {
					d.world.Disconnect()
					time.AfterFunc(3*time.Second, d.world.Reconnect)
				})
				now := d.until(d.migrateTo(target), api.MigrationCompleted)
				if n := d.calls("BlockCopy"); n != 1 {
					t.Errorf("%d jobs were begun, want 1", n)
				}
				d.moved(now)
			})
		})
	}
}

// The storage of src fails, so the operator may empty it: dst has each write since the mirror
// began.
func TestAMirrorWhoseSourceCannotStoreKeepsItsDestinationForTheOperator(t *testing.T) {
	for name, cancel := range map[string]bool{"complete": false, "cancel": true} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
				d.when("claim", op.EventStarted, func() {
					d.writesALot()
					d.loses(srcPath)
				})
				mig := d.untilItStands(d.migrateTo(mirrorToNewPool))
				if mig.State != api.MigrationNeedsOperator || d.lost() == 0 || !d.world.Exists(mig.Dst.Path) || d.calls("Suspend") != 0 {
					t.Fatalf("the migration is %s (%v), with %d blocks lost", mig.State, mig.Error, d.lost())
				}
				d.stillRunning()
				d.world.Images.Mu.Lock()
				d.world.Images.FlushFails = nil // the storage is repaired
				d.world.Images.Mu.Unlock()
				if cancel {
					d.until(d.cancels(mig.ID), api.MigrationCancelled)
					return
				}
				d.moved(d.until(d.completes(mig), api.MigrationCompleted))
				d.world.AssertNoWriteLost(t)
			})
		})
	}
}

// hangs makes each flush of an image take so long.
func (d *daemon) hangs(path string, how time.Duration) {
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	d.world.Images.Slow = func(flushed string) time.Duration {
		if flushed != path {
			return 0
		}
		return how
	}
}

// The result of such a flush is lost, so another job writes everything.
func TestAGuestIsNotPausedForAFlushThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		world  func(*testing.T, hv.State) *migratetest.World
		cancel bool
	}{
		"complete":        {unsafely(migratetest.NewWorld), false},
		"complete, clone": {unsafely(migratetest.KeepBaseWorld), false},
		"cancel":          {migratetest.NewWorld, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.writesALot()
				end, begun := mig.Dst.Path, "BlockCopy"
				if c.cancel {
					end, begun = srcPath, "CommitActive"
				}
				d.world.Inject(hvtest.Fault{Call: "Suspend", After: true, Do: func() { d.hangs(end, 10*time.Minute) }})
				if c.cancel {
					d.cancels(mig.ID)
				} else {
					d.completes(mig)
				}
				paused := time.Duration(0)
				for range 60 {
					pass(time.Second)
					if d.instance().State == hv.StatePaused {
						paused += time.Second
					}
				}
				if paused > move.DrainBound+time.Second {
					t.Errorf("the guest was paused for %s", paused)
				}
				d.hangs(end, 0)
				want := api.MigrationCompleted
				if c.cancel {
					want = api.MigrationCancelled
				}
				d.until(mig.ID, want)
				if n := d.calls(begun); n != 2 {
					t.Errorf("%d jobs were begun, want 2", n)
				}
				d.world.AssertNoWriteLost(t)
			})
		})
	}
}

// A job is not kept only because it began with its guest suspended, as some versions of QEMU need
// it.
func TestAnEndThatCouldNotStoreTwoJobsIsWrittenByTheThird(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{
		"a volume": migratetest.NewWorld, "a clone": migratetest.KeepBaseWorld,
		"a volume, held": losing, "a clone, held": migratetest.WithLosingQEMU(migratetest.KeepBaseWorld),
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.notStoredYet()
				d.when("begin_job", op.EventSucceeded, func() { d.loses(mig.Dst.Path) })
				before := d.lost()
				d.completes(mig)
				pass(time.Minute)
				if now := d.get(mig.ID); now.Error == nil || now.Error.Code != api.CodeIOError || d.lost() == before || now.State != api.MigrationCopied {
					t.Fatalf("the migration is %s: %v", now.State, now.Error)
				}
				d.stillRunning()
				now := d.until(d.completes(mig), api.MigrationCompleted)
				if begun, ended := d.calls("BlockCopy"), d.calls("AbortJob"); begun != 3 || ended != 2 {
					t.Errorf("%d jobs were begun and %d ended, want 3 and 2", begun, ended)
				}
				d.moved(now)
			})
		})
	}
}

// A paused guest does not prove that the op has paused it, or that the flush before the pause has
// ended.
func TestADaemonThatDiesInTheFlushOfAnEndDoesNotTakeThePauseOfAPersonForItsOwn(t *testing.T) {
	for name, world := range liveFolds {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, unsafely(world), hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				d.writesALot()
				d.when("pause", op.EventNoted, func() {
					d.diesWhile(func() {
						d.world.FailSync(mig.Dst.Path)
						must(t, d.world.Suspend(context.Background(), testInstance))
					})
				})
				d.until(d.completes(mig), api.MigrationCompleted)
				if begun, ended := d.calls("BlockCopy"), d.calls("AbortJob"); begun != 2 || ended != 1 {
					t.Errorf("%d jobs were begun and %d ended, want 2 and 1", begun, ended)
				}
				if state := d.instance().State; state != hv.StatePaused {
					t.Errorf("the guest is %s, and a person has paused it", state)
				}
				d.world.AssertNoWriteLost(t)
			})
		})
	}
}

// Overlay and dst may be on one filesystem.
func TestAnEndThatCouldNotStoreDoesNotPromiseWhatTheOverlayCouldNotStore(t *testing.T) {
	inBubbleOn(t, unsafely(migratetest.NewWorld), hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.writesALot()
		says := func(path string) string {
			d.loses(path)
			d.completes(mig)
			d.failsToStore(mig.ID, api.MigrationCopied)
			return d.get(mig.ID).Error.Message
		}
		if m := says(overlayOf(mig)); strings.Contains(m, "only the memory") || !strings.Contains(m, "so has "+mig.Dst.Path) {
			t.Errorf("%s is in step with the disk, and it says %q", mig.Dst.Path, m)
		}
		if m := says(mig.Dst.Path); strings.Contains(m, "nothing is lost") {
			t.Errorf("the overlay has lost something before, and it says %q", m)
		}
	})
}
