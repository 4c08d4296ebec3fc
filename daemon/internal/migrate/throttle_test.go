// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// Guests are limited below 1 GiB, so that the free space lasts for 100 s.
const (
	slowBelow   = 1 << 30
	slowSeconds = 100
)

// slowing runs a test in fake time with a daemon that limits guests, and a guest with a limit of
// its own, 0 for none, on an overlay.
func slowing(t *testing.T, own int64, f func(t *testing.T, d *daemon, cfg *move.Config, mig api.Migration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := &move.Config{ThrottleBelowBytes: slowBelow, ThrottleFor: slowSeconds * time.Second}
		d := newDaemonWith(t, migratetest.NewWorld(t, hv.StateRunning), cfg)
		must(t, d.world.LimitByUser(testInstance, "vda", own))
		f(t, d, cfg, d.begin(toNewPool))
	})
}

// leave leaves this much space for overlays, and lets the watch see it.
func (d *daemon) leave(free int64) {
	d.world.Images.Free.Store(free)
	pass(2 * monitor.RoomWatchEvery)
	synctest.Wait()
}

func (d *daemon) wantLimit(want int64) {
	d.t.Helper()
	if got := d.world.WriteLimit(testInstance, "vda"); got != want {
		d.t.Errorf("the guest may write %d bytes per second, want %d", got, want)
	}
}

// atFree returns the limit of a guest with so much free space, in whole KiB.
func atFree(free int64) int64 { return free / slowSeconds >> 10 << 10 }

func (d *daemon) cancelled(mig api.Migration) {
	d.t.Helper()
	_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
	must(d.t, err)
	d.until(mig.ID, api.MigrationCancelled)
	pass(time.Minute)
	d.stayed()
}

func TestAGuestIsSlowedSoThatWhatIsFreeForItsOverlayLasts(t *testing.T) {
	slowing(t, 0, func(_ *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
		d.leave(slowBelow)
		d.wantLimit(0)
		d.leave(slowBelow - 1)
		d.wantLimit(atFree(slowBelow - 1))
		if text := d.get(mig.ID).GuestThrottled; !strings.Contains(text, "instance web may write") {
			t.Errorf("the migration says %q", text)
		}
		d.leave(slowBelow - slowBelow/10) // too small a change to set another
		d.wantLimit(atFree(slowBelow - 1))
		d.leave(slowBelow / 2)
		d.wantLimit(atFree(slowBelow / 2))
		d.leave(1)
		d.wantLimit(blockjob.ThrottleBytesPerSecond)
		d.leave(slowBelow + 1) // it would be short again at once
		d.wantLimit(atFree(slowBelow + 1))
		d.leave(slowBelow + slowBelow/monitor.RoomBack)
		d.wantLimit(0)
		if text := d.get(mig.ID).GuestThrottled; text != "" {
			t.Errorf("the migration still says %q", text)
		}
		if left := d.world.Blobs.Keys(); len(left) > 0 {
			t.Errorf("the journal still has %v", left)
		}
		if got, want := d.world.Audits(), []string{"guest.throttle instance/" + testInstance, "guest.unthrottle instance/" + testInstance}; !slices.Equal(got, want) {
			t.Errorf("the audit trail was told %q, want %q", got, want)
		}
		d.cancelled(mig)
	})
}

func TestADiskThatIsSlowedWithTheDisksOfItsThrottleGroupNamesThem(t *testing.T) {
	slowing(t, 0, func(t *testing.T, d *daemon, _ *move.Config, _ api.Migration) {
		text := d.manager().Monitor.SlowText(&move.Spec{InstanceName: "web", Target: "vda"}, &monitor.Room{}, &blockjob.WriteLimit{Space: 1 << 20, Is: 1 << 20, With: []string{"vdb"}})
		if !strings.Contains(text, "to disk vda, and to vdb, which share its throttle group, together, since") {
			t.Errorf("the migration says %q", text)
		}
	})
}

func TestTheOwnersLimitIsKeptAndPutBack(t *testing.T) {
	for name, own := range map[string]int64{"a higher one": 100 << 20, "a lower one": 4096} {
		t.Run(name, func(t *testing.T) {
			slowing(t, own, func(_ *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
				d.leave(slowBelow / 2)
				d.wantLimit(min(own, atFree(slowBelow/2)))
				d.leave(1 << 40)
				d.wantLimit(own)
				d.leave(slowBelow / 2)
				d.cancelled(mig)
			})
		})
	}
}

func TestTheLimitIsOffWhereTheMoveEnds(t *testing.T) {
	for name, end := range map[string]func(d *daemon, mig api.Migration){
		"completed": func(d *daemon, mig api.Migration) {
			_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
			must(d.t, err)
			mig = d.until(mig.ID, api.MigrationCopied)
			_, _, err = d.manager().Complete(context.Background(), Call{OpID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0bbb", Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(d.t, err)
			mig = d.until(mig.ID, api.MigrationCompleted)
			pass(time.Minute)
			d.moved(mig)
		},
		"cancelled": (*daemon).cancelled,
		"cancelled, and the guest is off": func(d *daemon, mig api.Migration) {
			must(d.t, d.world.Destroy(testInstance))
			d.cancelled(mig)
			must(d.t, d.world.Start(testInstance))
		},
	} {
		t.Run(name, func(t *testing.T) {
			slowing(t, 0, func(_ *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
				d.leave(slowBelow / 2)
				d.wantLimit(atFree(slowBelow / 2))
				end(d, mig)
				d.wantLimit(0)
			})
		})
	}
}

// After any death at any call the guest ends with its own limit.
func TestTheOwnersLimitIsBackWhateverDiesAtAnyCall(t *testing.T) {
	for name, happen := range map[string]func(*daemon){
		"the daemon":                func(d *daemon) { go d.Restart() },
		"libvirt for three seconds": func(d *daemon) { awayFor(d, 3*time.Second) },
		"the journal": func(d *daemon) {
			d.world.Blobs.SetFails(errors.New("no space left on device"))
			time.AfterFunc(3*time.Second, func() { d.world.Blobs.SetFails(nil) })
		},
	} {
		for _, after := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				const own = 100 << 20
				for n := 1; ; n++ {
					reached := false
					slowing(t, own, func(_ *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
						d.world.Inject(hvtest.Fault{Call: "PutWriteLimit", Nth: n, After: after, Do: func() { reached = true; happen(d) }})
						for _, free := range []int64{slowBelow / 2, slowBelow / 4, 1 << 40, slowBelow / 2} {
							d.leave(free)
						}
						pass(5 * time.Second)
						d.wantLimit(atFree(slowBelow / 2))
						d.cancelled(mig)
					})
					if !reached {
						if n < 4 {
							t.Fatalf("the limit was put %d times", n-1)
						}
						return
					}
				}
			})
		}
	}
}

func TestALimitThatSomebodyHasChangedIsLeft(t *testing.T) {
	for name, theirs := range map[string]int64{"another": 7 << 20, "none": 0} {
		t.Run(name, func(t *testing.T) {
			slowing(t, 100<<20, func(t *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
				d.leave(slowBelow / 2)
				must(t, d.world.LimitByUser(testInstance, "vda", theirs))
				for _, free := range []int64{slowBelow / 4, slowBelow / 8, 1 << 40} {
					d.leave(free)
					d.wantLimit(theirs)
				}
				d.leave(slowBelow / 2) // after there was space, their limit is the one to restore
				d.wantLimit(atFree(slowBelow / 2))
				d.cancelled(mig)
			})
		})
	}
}

func TestAMoveSaysThatItLeftALimitOfSomebodyElse(t *testing.T) {
	slowing(t, 0, func(t *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
		d.leave(slowBelow / 2)
		must(t, d.world.LimitByUser(testInstance, "vda", 7<<20))
		d.leave(slowBelow / 2)
		if text := d.get(mig.ID).GuestThrottled; !strings.Contains(text, "somebody has changed the limit") {
			t.Errorf("the migration says %q", text)
		}
		d.cancelled(mig)
		if remark := d.get(mig.ID).Remark; !strings.Contains(remark, "virsh blkdeviotune web vda") {
			t.Errorf("the migration remarks %q", remark)
		}
	})
}

func TestANewProcessOfTheGuestIsSlowedFromItsOwnLimitOn(t *testing.T) {
	slowing(t, 0, func(t *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
		d.leave(slowBelow / 2)
		must(t, d.world.Destroy(testInstance))
		d.leave(slowBelow / 2)
		if left := d.world.Blobs.Keys(); len(left) > 0 {
			t.Errorf("the limit went with the process, and the journal has %v", left)
		}
		must(t, d.world.Start(testInstance))
		must(t, d.world.LimitByUser(testInstance, "vda", 50<<20))
		d.leave(slowBelow / 2)
		d.wantLimit(atFree(slowBelow / 2))
		d.cancelled(mig)
	})
}

func TestADaemonThatDoesNotSlowGuestsTakesOffWhatOneHasLeft(t *testing.T) {
	slowing(t, 100<<20, func(_ *testing.T, d *daemon, cfg *move.Config, mig api.Migration) {
		d.leave(slowBelow / 2)
		d.RestartAfter(func() { cfg.ThrottleBelowBytes = 0 })
		d.leave(slowBelow / 2)
		d.wantLimit(100 << 20)
		d.cancelled(mig)
	})
}

// The lower of the two limits counts, and the guest has its own when both are removed.
func TestACommitThatGetsNowhereSlowsAGuestThatIsSlowedForTheRoom(t *testing.T) {
	slowing(t, 100<<20, func(_ *testing.T, d *daemon, _ *move.Config, mig api.Migration) {
		d.leave(slowBelow / 2)
		d.world.SetStep(0)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(d.t, err)
		pass(move.CommitBound + move.CommitBound/2)
		d.wantLimit(blockjob.ThrottleBytesPerSecond)
		d.world.SetStep(100)
		d.until(mig.ID, api.MigrationCancelled)
		pass(time.Minute)
		d.stayed()
	})
}
