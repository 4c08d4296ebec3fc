// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// simulateMirror is a mirror with a fault. The guest's data must not be lost; with mayGiveUp the
// migration may be given up.
func simulateMirror(begun, mayGiveUp bool) simulation {
	return func(t *testing.T, d *daemon, fault hvtest.Fault) {
		t.Helper()
		if !begun {
			d.world.Inject(fault)
		}
		var id string
		for id == "" {
			mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: mirrorToNewPool, Composite: true})
			if code := api.CodeOf(err); code == api.CodeHypervisorUnavailable || code == api.CodeInstanceBusy {
				pass(time.Second)
				continue
			}
			must(t, err)
			id = mig.ID
		}
		if begun {
			d.world.Inject(fault)
		}
		mig := d.until(id, api.MigrationCompleted, api.MigrationCancelled)
		calm(d)
		switch {
		case mig.State == api.MigrationCompleted:
			d.moved(mig)
		case !mayGiveUp:
			t.Errorf("the migration was given up: %v", mig.Error)
		default:
			d.gone(mig)
		}
	}
}

func TestAMirrorLosesNothingWhateverFailsAtEveryCall(t *testing.T) {
	for _, c := range []struct {
		name      string
		begun     bool // the fault happens only after the start
		mayGiveUp bool
		happen    func(d *daemon) hvtest.Fault
	}{
		{"libvirt goes away before", false, false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { awayFor(d, 3*time.Second) }}
		}},
		{"libvirt goes away after", false, false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() { awayFor(d, 3*time.Second) }}
		}},
		{"the daemon dies", true, false, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { go d.Restart() }}
		}},
		{"the guest restarts", false, true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				time.AfterFunc(3*time.Second, func() { _ = d.world.Start(testInstance) })
			}}
		}},
		{"the guest crashes and is there again at once", false, true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				_ = d.world.Start(testInstance)
			}}
		}},
		{"the guest is destroyed", false, true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { _ = d.world.Destroy(testInstance) }}
		}},
		{"libvirt and the guest die together", false, true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				awayFor(d, time.Second)
			}}
		}},
		{"the job meets an I/O error", false, true, func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { _ = d.world.BreakJob(testInstance, "vda") }}
		}},
	} {
		for _, state := range migratetest.ActiveStates {
			t.Run(c.name+", "+string(state), func(t *testing.T) { everyCall(t, state, simulateMirror(c.begun, c.mayGiveUp), c.happen) })
		}
	}
}

// The daemon dies at any record, the guest is resumed by hand, writes and is shut down.
func TestAMirroredGuestThatIsResumedWhileTheDaemonIsDeadLosesNothing(t *testing.T) {
	everyRecord(t, "mirror", func(t *testing.T, d *daemon, arm func(func())) {
		arm(func() {
			d.diesWhile(func() {
				must(t, d.world.ResumeByUser(testInstance))
				for range 5 {
					d.world.GuestWrites()
				}
				must(t, d.world.Stop(testInstance))
			})
		})
		mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: mirrorToNewPool, Composite: true})
		if code := api.CodeOf(err); code == api.CodeJournalUnavailable {
			return // refused without a change
		}
		must(t, err)
		mig = d.until(mig.ID, api.MigrationCompleted, api.MigrationCancelled)
		if mig.State == api.MigrationCompleted {
			d.moved(mig)
		} else {
			d.gone(mig)
		}
	})
}
