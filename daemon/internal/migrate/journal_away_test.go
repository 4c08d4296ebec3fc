// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// The journal accepts nothing from some record on, for a while. The guest runs then, at any record,
// and has lost nothing at the end.
func TestAGuestDoesNotStandStillWhileTheJournalTakesNothing(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{
		"with a QEMU that keeps all writes":                 migratetest.NewWorld,
		"with a guest that is suspended while a job begins": losing,
	} {
		everyRecordOn(t, world, "complete "+name, func(t *testing.T, d *daemon, arm func(func())) {
			mig := d.copied()
			arm(d.journalAway)
			d.completes(mig)
			d.moved(d.until(mig.ID, api.MigrationCompleted))
		})
		everyRecordOn(t, world, "cancel "+name, func(t *testing.T, d *daemon, arm func(func())) {
			mig := d.copied()
			for range 20 {
				d.world.GuestWrites()
			}
			arm(d.journalAway)
			_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
			must(t, err)
			d.until(mig.ID, api.MigrationCancelled)
			d.stayed()
		})
	}
}

// journalAway makes the journal accept nothing for some time. The guest must run before that ends.
func (d *daemon) journalAway() {
	d.journal.SetDown(true)
	go func() {
		defer d.journal.SetDown(false)
		pass(5 * time.Second)
		for range 5 {
			d.world.GuestWrites()
		}
		if dom, err := d.world.Fake.Domain(context.Background(), testInstance); err != nil || dom.State != hv.StateRunning {
			d.t.Errorf("the guest is %v, %v, with the journal away", dom.State, err)
		}
		pass(20 * time.Second)
	}()
}
