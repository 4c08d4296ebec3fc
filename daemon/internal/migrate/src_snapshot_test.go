// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

// strangerWrites simulates another program that writes to src.
func (d *daemon) strangerWrites() {
	d.t.Helper()
	must(d.t, d.world.WriteBlock(d.world.Src.Path, 5, 4711))
}

// removesSnapshot simulates a person who removes the snapshot of a move.
func (d *daemon) removesSnapshot(mig string) {
	d.t.Helper()
	src, name := d.world.Src.Path, rbd.SnapshotName(mig)
	s, err := d.world.ImageSnapshot(context.Background(), src, name)
	must(d.t, err)
	if s.ID == 0 {
		d.t.Fatalf("src has no snapshot %s", name)
	}
	must(d.t, d.world.RemoveImageSnapshot(context.Background(), src, name, s.ID))
}

type ending = func(*Manager, context.Context, Call) (api.Migration, string, error)

// asks makes a call on a migration, and returns its error.
func (d *daemon) asks(do ending, mig api.Migration) *api.Error {
	d.t.Helper()
	call := d.call(mig.ID)
	call.DstAttachmentID = mig.DstAttachmentID
	_, opID, err := do(d.manager(), context.Background(), call)
	must(d.t, err)
	return d.ended(opID)
}

func TestAnRBDImageThatIsWrittenWhileItMovesIsNeitherSwitchedFromNorFoldedInto(t *testing.T) {
	offlineRBD := offline(migratetest.RBDWorld)
	for _, c := range []struct {
		name  string
		world func(*testing.T, hv.State) *migratetest.World
		state hv.State
		do    ending
		step  string
	}{
		{"before the copy of a running guest", migratetest.RBDWorld, hv.StateRunning, (*Manager).Copy, "copy"},
		{"before the copy of a stopped guest", migratetest.RBDWorld, hv.StateStopped, (*Manager).Copy, "copy"},
		{"before the copy with the guest kept off", offlineRBD, hv.StateStopped, (*Manager).Copy, "copy"},
		{"before the complete of a running guest", migratetest.RBDWorld, hv.StateRunning, (*Manager).Complete, "verify_copy"},
		{"before the pause of a running guest", migratetest.RBDWorld, hv.StateRunning, (*Manager).Complete, "pause"},
		{"before the complete of a stopped guest", migratetest.RBDWorld, hv.StateStopped, (*Manager).Complete, "verify_copy"},
		{"before the complete with the guest kept off", offlineRBD, hv.StateStopped, (*Manager).Complete, "verify_copy"},
		{"before the switch with the guest kept off", offlineRBD, hv.StateStopped, (*Manager).Complete, "name_dst_while_off"},
		{"before the cancel of a running guest", migratetest.RBDWorld, hv.StateRunning, (*Manager).Cancel, "admit"},
		{"before the commit of a running guest", migratetest.RBDWorld, hv.StateRunning, (*Manager).Cancel, "commit"},
		{"before the cancel of a stopped guest", migratetest.RBDWorld, hv.StateStopped, (*Manager).Cancel, "admit"},
		{"before the fold of a stopped guest", migratetest.RBDWorld, hv.StateStopped, (*Manager).Cancel, "fold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleOn(t, c.world, c.state, func(t *testing.T, d *daemon) {
				mig := d.begin(d.world.To)
				if c.step != "copy" {
					_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
					must(t, err)
					mig = d.until(mig.ID, api.MigrationCopied)
				}
				var written map[int64]uint64
				d.when(c.step, op.EventStarted, func() {
					d.strangerWrites()
					written, _ = d.world.ReadImage(d.world.Src.Path)
				})
				refused := d.asks(c.do, mig)
				if refused == nil || refused.Code != api.CodeChainChanged || !strings.Contains(refused.Message, "rbd diff --from-snap "+rbd.SnapshotName(mig.ID)+" rbd/web") {
					t.Errorf("ended with %v, want chain_changed, and how to see what was written", refused)
				}
				if now, err := d.world.ReadImage(d.world.Src.Path); err != nil || !maps.Equal(now, written) {
					t.Errorf("src was written by us: %v", err)
				}
				if left := d.world.SnapshotsOf(d.world.Src.Path); !slices.Equal(left, []string{rbd.SnapshotName(mig.ID)}) {
					t.Errorf("src has the snapshots %v, by which a person may look", left)
				}
			})
		})
	}
}

func TestAnRBDImageThatIsWrittenInItsCopyIsNotSwitchedFrom(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.Copier.Gate = make(chan struct{})
		_, opID, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopying)
		synctest.Wait()
		d.strangerWrites()
		close(d.world.Copier.Gate)
		if refused := d.ended(opID); refused == nil || refused.Code != api.CodeChainChanged {
			t.Errorf("the copy ended with %v, want chain_changed", refused)
		}
	})
}

func TestAnRBDImageThatWasTouchedAndIsWhatWasCopiedIsSwitchedFrom(t *testing.T) {
	for _, state := range allStates {
		inBubbleOn(t, migratetest.RBDWorld, state, func(t *testing.T, d *daemon) {
			mig := d.copied()
			must(t, d.world.Touch(d.world.Src.Path))
			d.ends(mig, false)
		})
	}
}

// A death at a call is a death before its effect is in the journal.
func TestNoSnapshotIsLeftOfAnRBDImageWhateverHappensAtACallAboutIt(t *testing.T) {
	const dies, away = "the daemon dies", "libvirt goes away"
	for _, call := range []string{"ImageSnapshot", "MakeImageSnapshot", "RemoveImageSnapshot"} {
		for _, what := range []string{dies, away} {
			for _, after := range []bool{false, true} {
				for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"under an overlay": migratetest.RBDWorld, "kept off": offline(migratetest.RBDWorld)} {
					t.Run(fmt.Sprintf("%s, %s, after it %t, %s", call, what, after, name), func(t *testing.T) {
						atEveryCallOfASnapshot(t, world, call, func(d *daemon, cancel bool, nth int) (happened bool) {
							d.world.Inject(hvtest.Fault{Call: call, Nth: nth, After: after, Do: func() {
								happened = true
								if what == dies {
									d.diesWhile(func() {})
									return
								}
								awayFor(d, 3*time.Second)
							}})
							mig := d.begin(d.world.To)
							if cancel {
								d.copyAndCancel(mig.ID)
								calm(d)
								d.stayed()
								return happened
							}
							_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
							must(d.t, err)
							d.until(mig.ID, api.MigrationCopied)
							d.until(d.completes(mig), api.MigrationCompleted)
							calm(d)
							d.moved(d.get(mig.ID))
							return happened
						})
					})
				}
			}
		}
	}
}

// atEveryCallOfASnapshot makes a trial of a complete and of a cancel for the first such call, then
// for the second, and so on.
func atEveryCallOfASnapshot(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, call string, trial func(d *daemon, cancel bool, nth int) (happened bool)) {
	t.Helper()
	for _, cancel := range []bool{false, true} {
		nth := 1
		for happened := true; happened; nth++ {
			synctest.Test(t, func(t *testing.T) {
				happened = trial(newDaemon(t, world(t, hv.StateStopped)), cancel, nth)
			})
		}
		if nth == 2 {
			t.Errorf("nothing has called %s, cancel %t", call, cancel)
		}
	}
}

func TestAMoveOfAnRBDImageWhoseUserMayMakeNoSnapshotsGoesOnWithoutOne(t *testing.T) {
	for _, state := range allStates {
		for _, cancel := range []bool{false, true} {
			inBubbleOn(t, migratetest.RBDWorld, state, func(_ *testing.T, d *daemon) {
				d.world.Images.NoSnapshots = hosttest.ErrNoSnapshots
				d.ends(d.copied(), cancel)
			})
		}
	}
}

func TestASnapshotThatAMoveHasNotMadeIsNeitherTrustedNorRemoved(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(_ *testing.T, d *daemon) {
			d.world.Inject(hvtest.Fault{Call: "Snapshot", Do: func() { // of the switch to the overlay
				name := rbd.SnapshotName(d.world.Registry.CurrentVolume().MigrationID)
				must(d.t, d.world.MakeImageSnapshot(context.Background(), d.world.Src.Path, name))
				d.world.GuestWrites()
				d.world.Snapshots = []string{name}
			}})
			d.ends(d.copied(), cancel)
		})
	}
}

// The removal states that src is unchanged. A complete checks that itself, if it can.
func TestASnapshotThatAPersonHasRemovedIsNoReasonToStop(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		inBubbleOn(t, migratetest.RBDWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
			mig := d.copied()
			d.strangerWrites()
			d.removesSnapshot(mig.ID)
			if cancel {
				d.until(d.cancels(mig.ID), api.MigrationCancelled)
				if now, err := d.world.ReadImage(d.world.Src.Path); err != nil || now[5] != 4711 {
					t.Errorf("what was written is gone: %v", err)
				}
				return
			}
			if refused := d.asks((*Manager).Complete, mig); refused == nil || refused.Code != api.CodeChainChanged {
				t.Errorf("a complete with a copy that lacks what was written ended with %v, want chain_changed", refused)
			}
		})
		inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(_ *testing.T, d *daemon) {
			mig := d.copied()
			d.removesSnapshot(mig.ID)
			d.ends(mig, cancel)
		})
	}
}

func TestAStartWaitsForAClusterThatDoesNotAnswer(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		src := d.world.Src.Path
		d.when("verify_frozen", op.EventStarted, func() { d.world.SetSilent(src, true) })
		id := d.migrate()
		pass(time.Minute)
		synctest.Wait()
		if mig := d.get(id); mig.State != api.MigrationStarting || !strings.Contains(mig.Phase, "storage") {
			t.Errorf("the migration is %s (%s), want it to wait for the storage", mig.State, mig.Phase)
		}
		d.world.SetSilent(src, false)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

func TestAStartMakesItsSnapshotWhenLibvirtIsBackThatHasTheKey(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "MakeImageSnapshot"})
		mig := d.begin(d.world.To)
		if got := d.world.SnapshotsOf(d.world.Src.Path); !slices.Equal(got, []string{rbd.SnapshotName(mig.ID)}) {
			t.Errorf("src has the snapshots %v", got)
		}
	})
}

func TestAMoveThatIsOverDoesNotWaitForItsOldCluster(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.when("release_source", op.EventStarted, func() { d.world.SetSilent(d.world.Src.Path, true) })
		mig := d.until(d.migrate(), api.MigrationCompleted)
		name := rbd.SnapshotName(mig.ID)
		if want := "rbd snap rm rbd/web@" + name; !strings.Contains(mig.Remark, want) {
			t.Errorf("the remark is %q, want it to name %q", mig.Remark, want)
		}
		d.world.Snapshots = []string{name}
		d.moved(mig)
	})
}

// Between the last look and the switch another program can write to src, and the pause has no look.
func TestAWriteToAnRBDImageInTheSwitchIsSaidInTheEnd(t *testing.T) {
	for _, step := range []string{"drain", "publish_completed"} {
		inBubbleOn(t, migratetest.RBDWorld, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.when(step, op.EventStarted, d.strangerWrites)
			mig := d.until(d.migrate(), api.MigrationCompleted)
			if !strings.Contains(mig.Remark, d.world.Src.Path+" was written") {
				t.Errorf("the remark is %q", mig.Remark)
			}
			d.moved(mig)
		})
	}
}

// Otherwise Ceph would keep the blocks that the fold overwrites.
func TestASnapshotGoesBeforeTheOverlayIsWrittenBack(t *testing.T) {
	for state, step := range map[hv.State]string{hv.StateRunning: "pause", hv.StateStopped: "unguard"} {
		inBubbleOn(t, migratetest.RBDWorld, state, func(t *testing.T, d *daemon) {
			mig := d.copied()
			var left []string
			d.when(step, op.EventStarted, func() { left = d.world.SnapshotsOf(d.world.Src.Path) })
			d.ends(mig, true)
			if len(left) > 0 {
				t.Errorf("%s: behind the fold src has the snapshots %v", state, left)
			}
		})
	}
}

func TestAProtectedSnapshotIsLeftAndNamed(t *testing.T) {
	inBubbleOn(t, migratetest.RBDWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.copied()
		name := rbd.SnapshotName(mig.ID)
		must(t, d.world.ProtectSnapshot(d.world.Src.Path, name))
		d.world.Snapshots = []string{name}
		d.ends(mig, true)
		if remark := d.get(mig.ID).Remark; !strings.Contains(remark, name) {
			t.Errorf("the remark is %q", remark)
		}
	})
}
