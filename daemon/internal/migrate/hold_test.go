// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/internal/api"
)

// losing makes worlds with an instance in a QEMU that loses writes while a block job begins.
var losing = migratetest.WithLosingQEMU(migratetest.NewWorld)

// keepsState limits a simulation to faults after which only the daemon has changed the state of a
// guest.
func keepsState(state hv.State, simulate simulation) simulation {
	return func(t *testing.T, d *daemon, fault hvtest.Fault) {
		t.Helper()
		simulate(t, d, fault)
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if dom.State != state {
			t.Errorf("the guest is %s, and was %s", dom.State, state)
		}
	}
}

// mirrorOfAClone is a mirror of a linked clone: a mirror of a raw image misses nothing. It is not
// verified, since that would find missed writes.
func mirrorOfAClone(mayGiveUp bool) simulation {
	return func(t *testing.T, d *daemon, fault hvtest.Fault) {
		t.Helper()
		id := d.migrateTo(api.MigrationTarget{ToPool: "new", ToFormat: api.FormatRaw, Method: move.MethodMirror})
		d.world.Inject(fault)
		mig := d.until(id, api.MigrationCompleted, api.MigrationCancelled)
		calm(d)
		top := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: srcPath}
		if mig.State == api.MigrationCompleted {
			top = rawImage(mig.Dst.Path)
		} else if !mayGiveUp {
			t.Errorf("the migration was given up: %v", mig.Error)
		}
		d.world.SetQuiet()
		d.world.AssertNoWriteLost(t)
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		for _, disk := range slices.Concat(dom.Live, dom.Config) {
			if disk.Top() != top || disk.Mirror != nil {
				t.Errorf("the disk is %+v, want it on %s without a job", disk, top.Path)
			}
		}
	}
}

func TestNoWriteIsLostByAQEMUThatMissesWritesOrDiesOfThemWhenAJobBegins(t *testing.T) {
	type kind struct {
		name     string
		world    func(*testing.T, hv.State) *migratetest.World
		simulate simulation
	}
	kinds := func(mayGiveUp bool) []kind {
		return []kind{
			{"complete", losing, simulateComplete},
			{"cancel", losing, simulateCancel},
			{"mirror", migratetest.WithLosingQEMU(migratetest.CloneWorld), mirrorOfAClone(mayGiveUp)},
			{"complete with I/O threads", migratetest.WithIOThreads(migratetest.NewWorld), simulateComplete},
			{"mirror with I/O threads", migratetest.WithIOThreads(migratetest.CloneWorld), mirrorOfAClone(mayGiveUp)},
		}
	}
	for _, c := range []struct {
		name string
		// calm: only the daemon changes the guest.
		calm   bool
		happen func(d *daemon) hvtest.Fault // at each call, or nil
	}{
		{"nothing happens", true, nil},
		{"the daemon dies", true, func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { go d.Restart() }} }},
		{"the daemon dies after", true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() { go d.Restart() }}
		}},
		{"libvirt goes away", true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { awayFor(d, 3*time.Second) }}
		}},
		{"libvirt goes away after", true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() { awayFor(d, 3*time.Second) }}
		}},
		{"somebody resumes the guest", false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.ResumeByUser(testInstance)
				for range 5 {
					d.world.GuestWrites()
				}
			}}
		}},
		{"the guest restarts", false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				_ = d.world.Start(testInstance)
			}}
		}},
		{"the guest is destroyed", false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { _ = d.world.Destroy(testInstance) }}
		}},
		{"libvirt and the guest die together", false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				awayFor(d, time.Second)
			}}
		}},
	} {
		for _, state := range migratetest.ActiveStates {
			for _, k := range kinds(!c.calm) {
				t.Run(strings.Join([]string{k.name, c.name, string(state)}, ", "), func(t *testing.T) {
					simulate := k.simulate
					if c.calm {
						simulate = keepsState(state, simulate)
					}
					if c.happen == nil {
						inBubbleOn(t, k.world, state, func(t *testing.T, d *daemon) { simulate(t, d, hvtest.Fault{Do: func() {}}) })
						return
					}
					everyCallOn(t, k.world, state, simulate, c.happen)
				})
			}
		}
	}
}

// A restarted guest may have another QEMU, after a package was upgraded or downgraded.
func TestAGuestThatRestartsInAnotherQEMULosesNothing(t *testing.T) {
	restart := func(d *daemon) {
		d.world.SetAbout(hv.About{QEMU: migratetest.LosingQEMU})
		_ = d.world.Crash(testInstance)
		_ = d.world.Start(testInstance)
	}
	for _, call := range []string{"BlockCopy", "CommitActive"} {
		t.Run(call, func(t *testing.T) {
			inBubbleOn(t, migratetest.NewWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				for range 20 {
					d.world.GuestWrites()
				}
				d.world.Inject(hvtest.Fault{Call: call, Do: func() { restart(d) }})
				if call == "CommitActive" {
					_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
					must(t, err)
					d.until(mig.ID, api.MigrationCancelled)
					d.stayed()
					return
				}
				d.completes(mig)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
	everyRecord(t, "complete", func(t *testing.T, d *daemon, arm func(func())) {
		mig := d.copied()
		arm(func() { restart(d) })
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
	everyRecord(t, "cancel", func(t *testing.T, d *daemon, arm func(func())) {
		mig := d.begin(toNewPool)
		for range 20 {
			d.world.GuestWrites()
		}
		arm(func() { restart(d) })
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

// A guest keeps the QEMU of its start.
func TestAnUpgradeOfQEMUDoesNotCountForAGuestThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, losing(t, hv.StateRunning))
		d.world.SetAbout(hv.About{QEMU: hv.Version{Major: 11}})
		d.moved(d.until(d.migrate(), api.MigrationCompleted))
	})
}

func TestAGuestIsHeldForAJobOnlyWhereItsQEMULosesWritesOrDiesOfThem(t *testing.T) {
	type guest struct {
		qemu      hv.Version
		ioThreads bool
	}
	for g, want := range map[guest]bool{
		{migratetest.LosingQEMU, false}: true, {hv.Version{}, false}: true,
		{migratetest.DyingQEMU, false}: false, {migratetest.DyingQEMU, true}: true,
		{hv.Version{Major: 10, Patch: 9}, true}: false,
	} {
		t.Run(fmt.Sprintf("%s, I/O threads %t", g.qemu, g.ioThreads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := migratetest.NewWorld(t, hv.StateStopped)
				w.SetAbout(hv.About{QEMU: g.qemu})
				if g.ioThreads {
					must(t, w.SetIOThreads(testInstance))
				}
				must(t, w.Start(testInstance))
				d := newDaemon(t, w)
				mig := d.until(d.migrate(), api.MigrationCompleted)
				d.moved(mig)
				suspended := 0
				for _, call := range w.Calls() {
					if call == "Suspend" {
						suspended++
					}
				}
				if held := suspended == 2; held != want { // and once for the switch
					t.Errorf("the guest was suspended %d times", suspended)
				}
				if held := mig.StallMS.Job != nil; held != want {
					t.Errorf("stall_ms.job is %v", mig.StallMS.Job)
				}
			})
		})
	}
}

func TestAJobThatTakesTooLongToBeginIsEndedAndTheGuestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, losing(t, hv.StateRunning))
		mig := d.copied()
		d.world.SetStep(0)
		d.completes(mig)
		pass(pause.HoldBound + 10*time.Second)
		d.stillRunning()
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if m := dom.LiveDisk("vda").Mirror; m != nil {
			t.Errorf("a job is left that may have missed writes: %+v", m)
		}
		mig = d.until(mig.ID, api.MigrationCopied)
		if mig.Error == nil || !strings.Contains(mig.Error.Message, "may lose a write") {
			t.Errorf("the migration's error is %v", mig.Error)
		}
		d.world.SetStep(2)
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestADaemonThatStopsWhileAJobBeginsLeavesNoGuestPaused(t *testing.T) {
	for _, at := range []string{"may_begin", "pause_to_begin", "begin_job", "resume_after_begin", "mirror"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, losing(t, hv.StateRunning))
				mig := d.copied()
				stopped := d.stopAt(at)
				d.completes(mig)
				<-stopped
				d.stillRunning()
				d.Boot(nil)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
}

// A suspended guest is resumed by hand, writes and is suspended again while the daemon that had
// suspended it is dead: the job may have missed the writes.
func TestAJobThatADeadDaemonHasLeftIsBegunAnew(t *testing.T) {
	for call, simulate := range map[string]simulation{"BlockCopy": simulateComplete, "CommitActive": simulateCancel} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, losing(t, hv.StateRunning))
				simulate(t, d, hvtest.Fault{Call: call, After: true, Do: func() {
					d.diesWhile(func() {
						must(t, d.world.ResumeByUser(testInstance))
						for range 5 {
							d.world.GuestWrites()
						}
						must(t, d.world.Suspend(context.Background(), testInstance)) // it is unknown which program
					})
				}})
			})
		})
	}
}

// A job that a failed complete has begun with the guest suspended misses nothing: it is adopted,
// and the guest is suspended only for the switch.
func TestAJobThatWasBegunWithTheGuestSuspendedIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, losing(t, hv.StateRunning))
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "Pivot", Err: errors.New("libvirt will not")})
		complete := func() {
			d.completes(mig)
		}
		complete()
		mig = d.until(mig.ID, api.MigrationCopied)
		complete()
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		counts := map[string]int{}
		for _, call := range d.world.Calls() {
			counts[call]++
		}
		if counts["BlockCopy"] != 1 || counts["Suspend"] != 3 {
			t.Errorf("%d jobs were begun, and the guest was suspended %d times, want 1 and 3", counts["BlockCopy"], counts["Suspend"])
		}
	})
}

// It is stopped when the job begins, and would stop again at once if it was resumed then.
func TestAGuestThatAFullOverlayHasStoppedGoesOnOnlyWhenItIsOffTheOverlay(t *testing.T) {
	for name, end := range map[string]func(d *daemon, mig api.Migration) error{
		"complete": func(d *daemon, mig api.Migration) error {
			_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			return err
		},
		"cancel": func(d *daemon, mig api.Migration) error {
			_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, losing(t, hv.StateRunning))
				mig := d.copied()
				d.fill(mig)
				before := len(d.world.Calls())
				must(t, end(d, mig))
				d.until(mig.ID, api.MigrationCompleted, api.MigrationCancelled)
				d.stillRunning()
				resumed := 0
				for _, call := range d.world.Calls()[before:] {
					if call == "Resume" {
						resumed++
					}
				}
				if resumed != 1 {
					t.Errorf("the guest was resumed %d times, want once, off its overlay", resumed)
				}
			})
		})
	}
}
