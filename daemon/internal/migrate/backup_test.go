// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

func waitsForBackup(mig *api.Migration) bool { return mig.Phase == "waiting for backup" }

func TestASwitchWaitsForTheEndOfABackupAndGoesOnByItself(t *testing.T) {
	for name, cancel := range map[string]bool{"complete": false, "cancel": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				must(t, d.world.BeginBackup(testInstance, "vda"))
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
