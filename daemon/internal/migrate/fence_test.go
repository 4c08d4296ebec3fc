// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
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

// fenced simulates an operator who fences the host; the host learns that with its next report.
func (d *daemon) fenced() {
	d.world.Registry.Fence()
	d.manager().Epoch(d.world.Registry.NewestEpoch(testHost))
}

func (d *daemon) rejoined() {
	d.world.Registry.Rejoin()
	d.manager().Wake(false, true)
	must(d.t, d.manager().Rejoined(context.Background()))
}

// changes returns the calls of libvirt since the nth that change something.
func (d *daemon) changes(since int) []string {
	return slices.DeleteFunc(d.world.Calls()[since:], func(call string) bool {
		return slices.Contains([]string{"Domain", "About", "CanSwitch", "RunState", "Domains", "Job", "Pools", "OpenFiles", "QEMUUser", "WriteDeniedBy", "DeniesBelow", "DiskStats", "LookupVolume"}, call)
	})
}

func TestAFencedHostStopsTouchingUntilItHasRejoined(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		t.Run("copying "+target.Method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.world.Copier.Gate = make(chan struct{})
				mig := d.mirroring(target)
				d.fenced()
				pass(time.Second)
				close(d.world.Copier.Gate)
				before := len(d.world.Calls())
				pass(time.Hour + time.Second)
				if calls := d.changes(before); len(calls) > 0 {
					t.Errorf("a fenced host made the calls %v", calls)
				}
				got := d.get(mig.ID)
				if got.Phase != "waiting for registry" || got.State != api.MigrationCopying {
					t.Errorf("the migration is %s (%s)", got.State, got.Phase)
				}
				d.world.SetStep(2)
				d.rejoined()
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
}

// The host is fenced at a call of the registry, learns that only there, and rejoins later.
func TestAHostThatIsFencedAtAnyCallGoesOnOnceItHasRejoined(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		t.Run(target.Method, func(t *testing.T) {
			atEveryCall(t, hv.StateRunning, func(t *testing.T, d *daemon, n int) bool {
				moments := d.world.Registry.Moments
				moments.Arrange(n, hosttest.Happening{Do: func() {
					d.world.Registry.Fence()
					time.AfterFunc(time.Minute, d.rejoined)
				}})
				req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true}
				mig, err := d.manager().Start(context.Background(), req)
				for api.CodeOf(err) == api.CodeStaleEpoch { // refused without a change
					if list, err := d.manager().List(context.Background(), false); err != nil || len(list) != 0 {
						t.Fatalf("call %d: a refused start left %v (%v)", n, list, err)
					}
					pass(2 * time.Minute)
					req.OpID = uuid.NewString()
					mig, err = d.manager().Start(context.Background(), req)
				}
				must(t, err)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
				return moments.Happened()
			})
		})
	}
}

func TestAnAbandonedMigrationIsReleasedIfTheGuestIsOff(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.fenced()
		must(t, d.world.Stop(testInstance))
		d.world.Registry.Abandon(id)
		d.world.Registry.Take()
		before := len(d.world.Calls())
		d.rejoined()
		mig := d.until(id, api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeNoMigration || !strings.Contains(mig.Error.Message, overlayOf(mig)) {
			t.Errorf("the migration says %v", mig.Error)
		}
		if calls := d.changes(before); len(calls) > 0 {
			t.Errorf("what was abandoned was touched: %v", calls)
		}
		if !d.world.Exists(overlayOf(mig)) || !d.world.Exists(mig.Dst.Path) {
			t.Error("something of an abandoned migration was deleted")
		}
		if open, err := d.manager().List(context.Background(), false); err != nil || len(open) != 0 {
			t.Errorf("still open: %v (%v)", open, err)
		}
	})
}

func TestAnAbandonedMigrationOfARunningGuestCallsTheOperator(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		t.Run(target.Method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.world.Copier.Gate = make(chan struct{})
				mig := d.mirroring(target)
				d.fenced()
				d.world.Registry.Abandon(mig.ID)
				d.world.Registry.Take()
				d.rejoined()
				mig = d.until(mig.ID, api.MigrationNeedsOperator)
				if mig.Error == nil || !strings.Contains(mig.Error.Message, "fenced") {
					t.Errorf("the migration says %v", mig.Error)
				}
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if dom.State != hv.StateRunning || dom.LiveDisk("vda").Mirror != nil {
					t.Errorf("the guest is %s, its disk %+v", dom.State, dom.LiveDisk("vda"))
				}
				// With the guest off, a cancel makes the op look again.
				before := len(d.world.Calls())
				d.follow(mig)
				d.until(mig.ID, api.MigrationError)
				if calls := d.changes(before); len(calls) > 0 {
					t.Errorf("what was abandoned was touched: %v", calls)
				}
			})
		})
	}
}

// The operator kept src, and the instance still has it: no write of the guest is lost, and dst,
// which may be another volume's, is not touched.
func TestAnAbandonedMigrationIsRolledBackIfSrcIsStillTheInstances(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		for _, off := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s off=%t", target.Method, off), func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					d.world.Copier.Gate = make(chan struct{})
					mig := d.mirroring(target)
					d.world.GuestWrites()
					d.fenced()
					if off {
						must(t, d.world.Stop(testInstance))
					}
					d.world.Registry.Abandon(mig.ID)
					d.world.SetStep(2)
					d.rejoined()
					d.until(mig.ID, api.MigrationCancelled, api.MigrationError)
					d.stayed()
					if !d.world.Exists(mig.Dst.Path) {
						t.Error("dst was deleted, and may be another volume's")
					}
				})
			})
		}
	}
}

// The same for a migration that waited for its caller, without a running op.
func TestAnAbandonedMigrationThatNobodyWorksOnIsRolledBackToo(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		d.world.GuestWrites()
		d.fenced()
		d.world.Registry.Abandon(mig.ID)
		d.rejoined()
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

// The host is fenced in the pause of a switch: the guest has priority.
func TestAFenceDoesNotLeaveTheGuestPaused(t *testing.T) {
	for _, call := range []string{"Suspend", "Pivot"} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.Inject(hvtest.Fault{Call: call, Do: d.fenced})
			id := d.migrate()
			pass(time.Hour + time.Second)
			dom, err := d.world.Fake.Domain(context.Background(), testInstance)
			must(t, err)
			if dom.State != hv.StateRunning {
				t.Errorf("the guest is %s", dom.State)
			}
			if mig := d.get(id); mig.State != api.MigrationCompleting || mig.Phase != "waiting for registry" {
				t.Errorf("the migration is %s (%s)", mig.State, mig.Phase)
			}
			d.rejoined()
			d.moved(d.until(id, api.MigrationCompleted))
		})
	}
}

// An operator has kept src, or the registry was restored from a backup from before the move, and
// the guest was already switched to dst: this host cannot know which is right, and nothing is
// touched.
func TestAMigrationThatIsAbandonedBehindItsSwitchEndsWithTheGuestOff(t *testing.T) {
	for name, end := range map[string]func(*daemon, string){
		"abandoned": func(d *daemon, id string) { d.world.Registry.Abandon(id) },
		"forgotten": func(d *daemon, id string) { d.world.Registry.Forget(id) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.when("publish_completed", op.EventStarted, d.fenced)
				id := d.migrate()
				pass(time.Minute)
				end(d, id)
				d.rejoined()
				mig := d.until(id, api.MigrationNeedsOperator)
				before := len(d.world.Calls())
				d.follow(mig)
				d.until(id, api.MigrationError)
				if calls := d.changes(before); len(calls) > 0 {
					t.Errorf("what was abandoned was touched: %v", calls)
				}
				for _, path := range []string{srcPath, mig.Dst.Path, overlayOf(mig)} {
					if !d.world.Exists(path) {
						t.Errorf("%s is gone", path)
					}
				}
				r := &hosttest.Recorder{}
				d.world.AssertNoWriteLost(r)
				for _, err := range r.Problems {
					t.Error(err)
				}
			})
		})
	}
}

func TestAMigrationThatIsAbandonedAsItsStartOrItsCancelIsReportedIsRolledBack(t *testing.T) {
	for name, end := range map[string]func(*daemon, string){
		"abandoned": func(d *daemon, id string) { d.world.Registry.Abandon(id) },
		"forgotten": func(d *daemon, id string) { d.world.Registry.Forget(id) },
	} {
		for step, begin := range map[string]func(*daemon) string{
			"publish_started": (*daemon).migrate,
			"publish_cancelled": func(d *daemon) string {
				mig := d.begin(toNewPool)
				d.world.GuestWrites()
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(d.t, err)
				return mig.ID
			},
		} {
			t.Run(name+" "+step, func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					d.when(step, op.EventStarted, d.fenced)
					id := begin(d)
					pass(time.Minute)
					end(d, id)
					d.rejoined()
					d.until(id, api.MigrationCancelled)
					d.stayed()
				})
			})
		}
	}
}

// A restored registry has the migration in a state before the claim, and the guest is on dst.
func TestAMigrationThatARestoredRegistryHasBeforeItsSwitchIsCompleted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.when("publish_completed", op.EventStarted, d.fenced)
		id := d.migrate()
		pass(time.Minute)
		d.world.Registry.Revert(id, api.MigrationStarted)
		d.rejoined()
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

// The guest is already on src, and nothing is left to bring back.
func TestACancelThatIsAbandonedBehindItsFoldEnds(t *testing.T) {
	for _, at := range []string{"remove_destination", "publish_cancelled"} {
		forAllStates(t, func(t *testing.T, d *daemon) {
			mig := d.copied()
			d.when(at, op.EventStarted, d.fenced)
			d.cancels(mig.ID)
			pass(time.Minute)
			d.world.Registry.Abandon(mig.ID)
			d.rejoined()
			d.until(mig.ID, api.MigrationCancelled, api.MigrationError)
			d.stayed()
		})
	}
}

// The registry was restored from a backup from before the migration, and the host has a new epoch
// since.
func TestAMigrationThatARestoredRegistryDoesNotKnowIsRolledBack(t *testing.T) {
	for name, begin := range map[string]func(d *daemon) api.Migration{
		"that waits for a call": func(d *daemon) api.Migration { return d.begin(toNewPool) },
		"that is copied": func(d *daemon) api.Migration {
			d.world.Copier.Gate = make(chan struct{})
			return d.mirroring(toNewPool)
		},
		"that is a mirror": func(d *daemon) api.Migration { return d.mirroring(mirrorToNewPool) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := begin(d)
				d.world.GuestWrites()
				d.fenced()
				d.world.Registry.Forget(mig.ID)
				d.world.SetStep(2)
				d.rejoined()
				d.until(mig.ID, api.MigrationCancelled, api.MigrationError)
				d.stayed()
			})
		})
	}
}

// The same, and the registry has the volume elsewhere.
func TestAMigrationOfALostVolumeThatARestoredRegistryDoesNotKnowEndsWithTheGuestOff(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		mig := d.mirroring(toNewPool)
		d.fenced()
		d.world.Registry.Forget(mig.ID)
		d.world.Registry.Take()
		d.rejoined()
		d.follow(d.until(mig.ID, api.MigrationNeedsOperator))
		d.until(mig.ID, api.MigrationError)
		if !d.world.Exists(overlayOf(mig)) || !d.world.Exists(srcPath) {
			t.Error("something was deleted")
		}
	})
}
