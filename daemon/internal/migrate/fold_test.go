// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The libvirt hook may be missing. A guest that is started at any record of a complete or a cancel,
// and stopped again, loses nothing.
func TestWithoutTheHookAGuestMayRunAtAnyRecord(t *testing.T) {
	for name, run := range map[string]func(*daemon){
		"the daemon sees it": func(d *daemon) {
			_ = d.world.Start(testInstance) // or QEMU finds its image locked
			time.AfterFunc(3*time.Second, func() { _ = d.world.Stop(testInstance) })
		},
		"the daemon is dead": func(d *daemon) {
			d.diesWhile(func() {
				_ = d.world.Start(testInstance)
				for range 5 {
					d.world.GuestWrites()
				}
				_ = d.world.Stop(testInstance)
			})
		},
	} {
		for _, cancel := range []bool{false, true} {
			everyRecord(t, fmt.Sprintf("%s, cancel %v", name, cancel), func(t *testing.T, d *daemon, arm func(func())) {
				d.world.OnStart = nil
				mig := d.copied()
				must(t, d.world.Stop(testInstance))
				arm(func() { run(d) })
				d.ends(mig, cancel)
			})
		}
	}
}

// everyRecord repeats a test, with the armed function called at the first record after that, then
// at the second, and so on.
func everyRecord(t *testing.T, name string, f func(t *testing.T, d *daemon, arm func(func()))) {
	t.Helper()
	everyRecordOn(t, migratetest.NewWorld, name, f)
}

func everyRecordOn(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, name string, f func(t *testing.T, d *daemon, arm func(func()))) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		atEveryCallOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon, n int) (reached bool) {
			f(t, d, func(happen func()) {
				left := n
				d.journal.AfterAppend(func(op.Record) {
					if left--; left == 0 {
						reached = true
						happen()
					}
				})
			})
			pass(time.Minute)
			return reached
		})
	})
}

// copied makes a start and a copy by hand.
func (d *daemon) copied() api.Migration {
	d.t.Helper()
	mig := d.begin(d.world.To)
	_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
	must(d.t, err)
	return d.until(mig.ID, api.MigrationCopied)
}

// One of two disks of an instance is moved with the instance kept off: the end of the other's move
// must not allow a start.
func TestAFoldDoesNotEndTheHoldOfAnotherMigration(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		const other = "migration of another disk"
		must(t, d.world.Guards.Set(testInstance, other, "held"))
		d.until(d.migrate(), api.MigrationCompleted)
		if err := d.world.Start(testInstance); err == nil {
			t.Error("the instance started while another migration held it")
		}
		must(t, d.world.Guards.Clear(testInstance, other))
		must(t, d.world.Start(testInstance))
	})
}

// A person has defined the instance again from its old XML: its disk may or may not have newer data
// than the overlay.
func TestACancelDoesNotFoldAnOverlayThatTheInstanceWasTakenOff(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.begin(toNewPool)
		d.world.GuestWrites()
		must(t, d.world.Stop(testInstance))
		src := []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}}
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", src))
		before, err := d.world.ReadImage(srcPath)
		must(t, err)
		_, id, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		if refused := d.ended(id); refused == nil || refused.Code != api.CodeChainChanged {
			t.Errorf("cancel with the instance on src: %v, want chain_changed", refused)
		}
		after, err := d.world.ReadImage(srcPath)
		must(t, err)
		if len(before) != len(after) || !d.world.Exists(overlayOf(mig)) {
			t.Error("the overlay was folded or removed")
		}
	})
}

func overlayOf(mig api.Migration) string { return "/overlays/" + mig.ID + ".qcow2" }

// The guest dies in the pause and is started again before its definition is changed to dst: the
// definition must name only the chain that the guest writes.
func TestTheDefinitionDoesNotNameADestinationThatTheGuestDoesNotWriteTo(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		struck := 0
		d.when("name_dst", op.EventStarted, func() {
			if struck > 0 {
				return
			}
			struck = len(d.world.Calls())
			must(t, d.world.Crash(testInstance))
			must(t, d.world.Start(testInstance))
		})
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		calls := d.world.Calls()[struck:]
		if until := slices.Index(calls, "BlockCopy"); until < 0 || slices.Contains(calls[:until], "SetConfigChain") {
			t.Errorf("before the next copy was begun: %v, want no change of the definition", calls)
		}
	})
}
