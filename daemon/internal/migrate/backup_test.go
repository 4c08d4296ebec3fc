// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func waitsForBackup(mig *api.Migration) bool { return mig.Phase == "waiting for backup" }

// With a QEMU that loses writes the guest is suspended when the job begins, and runs while the op
// waits for the backup.
func TestASwitchWaitsForTheEndOfABackupAndGoesOnByItself(t *testing.T) {
	for name, c := range map[string]struct {
		world  func(*testing.T, hv.State) *migratetest.World
		cancel bool
		call   string // the backup begins before it, at once if empty
	}{
		"complete":                              {migratetest.NewWorld, false, ""},
		"cancel":                                {migratetest.NewWorld, true, ""},
		"complete, held":                        {losing, false, ""},
		"cancel, held":                          {losing, true, ""},
		"complete, held, begun as it is paused": {losing, false, "Suspend"},
		"cancel, held, begun as it is paused":   {losing, true, "Suspend"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
				cancel := c.cancel
				mig := d.copied()
				begin := func() { must(t, d.world.BeginBackup(testInstance, "vda")) }
				if c.call == "" {
					begin()
				} else {
					d.world.Inject(hvtest.Fault{Call: c.call, Do: begin})
				}
				want := api.MigrationCompleted
				if cancel {
					want = api.MigrationCancelled
					d.cancels(mig.ID)
				} else {
					d.completes(mig)
				}
				d.awaitShown(mig.ID, waitsForBackup)
				pass(10 * time.Minute)
				synctest.Wait()
				d.stillRunning()
				if shown := d.show(mig.ID); !waitsForBackup(&shown) || shown.Stopped() || shown.Error != nil {
					t.Errorf("after ten minutes it is %s, %s: %v", shown.State, shown.Phase, shown.Error)
				}
				must(t, d.world.EndBackup(testInstance, "vda"))
				d.until(mig.ID, want)
				d.stillRunning()
			})
		})
	}
}

func TestACompleteThatWaitsForABackupIsCancelled(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		must(t, d.world.BeginBackup(testInstance, "vda"))
		d.completes(mig)
		d.awaitShown(mig.ID, waitsForBackup)
		d.cancels(mig.ID)
		d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.State == api.MigrationCancelling && waitsForBackup(m) })
		must(t, d.world.EndBackup(testInstance, "vda"))
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAMigrateGoesOnByItselfAfterABackupThatBeganInItsMiddle(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		begun := false
		d.journal.AfterAppend(func(r op.Record) {
			if !begun && r.Step == "copy" {
				begun = true
				must(t, d.world.BeginBackup(testInstance, "vda"))
			}
		})
		id := d.migrate()
		d.awaitShown(id, waitsForBackup)
		must(t, d.world.EndBackup(testInstance, "vda"))
		d.moved(d.until(id, api.MigrationCompleted))
	})
}
