// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

type simulation func(t *testing.T, d *daemon, fault hvtest.Fault)

// everyCall repeats one whole migration, with something happening at its first call of the
// hypervisor, then at its second, and so on, until a migration ends before that.
func everyCall(t *testing.T, state hv.State, simulate simulation, happen func(d *daemon) hvtest.Fault) {
	t.Helper()
	everyCallOn(t, migratetest.NewWorld, state, simulate, happen)
}

func everyCallOn(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State, simulate simulation, happen func(d *daemon) hvtest.Fault) {
	t.Helper()
	atEveryCallOn(t, world, state, func(t *testing.T, d *daemon, n int) (reached bool) {
		d.world.WatchDefinition()
		fault := happen(d)
		do := fault.Do
		fault.Nth, fault.Do = n, func() {
			reached = true
			if do != nil {
				do()
			}
		}
		simulate(t, d, fault)
		return reached
	})
}

func simulateComplete(t *testing.T, d *daemon, fault hvtest.Fault) {
	t.Helper()
	d.world.Copier.Gate = make(chan struct{})
	id := d.migrate()
	said := &promises{d: d, mig: id}
	said.look(d.until(id, api.MigrationCopying))
	d.world.Inject(fault)
	close(d.world.Copier.Gate)
	mig := d.until(id, api.MigrationCompleted)
	calm(d)
	said.srcIsFrozen(mig)
	d.moved(mig)
}

func simulateCancel(t *testing.T, d *daemon, fault hvtest.Fault) {
	t.Helper()
	simulateCancelOf(t, d, d.begin(d.world.To), fault)
}

// simulateCancelOf is simulateCancel for a migration that was started.
func simulateCancelOf(t *testing.T, d *daemon, mig api.Migration, fault hvtest.Fault) {
	t.Helper()
	said := &promises{d: d, mig: mig.ID}
	said.look(mig)
	for range 20 {
		d.world.GuestWrites()
	}
	said.look(mig)
	d.world.Inject(fault)
	for {
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		if code := api.CodeOf(err); code == api.CodeHypervisorUnavailable || code == api.CodeJournalUnavailable {
			pass(time.Second) // as a person would
			continue
		}
		must(t, err)
		break
	}
	d.until(mig.ID, api.MigrationCancelled)
	calm(d)
	d.stayed()
}

// calm lets background work end.
func calm(d *daemon) {
	d.world.ClearFaults()
	pass(time.Minute)
	synctest.Wait()
}

// duringEverything runs simulations of complete and of cancel in each state, with src and dst at
// files and addresses.
func duringEverything(t *testing.T, states []hv.State, happen func(d *daemon) hvtest.Fault) {
	t.Helper()
	for _, state := range states {
		for name, simulate := range map[string]simulation{"complete ": simulateComplete, "cancel ": simulateCancel} {
			t.Run(name+string(state), func(t *testing.T) {
				migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
					everyCallOn(t, world, state, simulate, happen)
				})
			})
		}
	}
}

func TestTheGuestIsDestroyedAtEveryCall(t *testing.T) {
	duringEverything(t, migratetest.ActiveStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{Do: func() { _ = d.world.Destroy(testInstance) }}
	})
}

// libvirt may report the guest as present for some time after its monitor broke.
func TestTheGuestDiesInACallAndLibvirtNoticesLater(t *testing.T) {
	for _, call := range []string{"BlockCopy", "CommitActive", "Suspend", "Job", "Pivot"} {
		t.Run(call, func(t *testing.T) {
			duringEverything(t, migratetest.ActiveStates, func(d *daemon) hvtest.Fault {
				return hvtest.Fault{
					Call: call, Err: hv.ErrProcessEnds,
					Do: func() { time.AfterFunc(look.DestroyNotice/2, func() { _ = d.world.Crash(testInstance) }) },
				}
			})
		})
	}
}

func TestTheGuestIsStartedAtEveryCall(t *testing.T) {
	duringEverything(t, []hv.State{hv.StateStopped}, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{Do: func() { _ = d.world.Start(testInstance) }}
	})
}

func TestTheGuestCrashesAfterEveryCallAndIsStartedAgain(t *testing.T) {
	duringEverything(t, migratetest.ActiveStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() {
			_ = d.world.Crash(testInstance)
			_ = d.world.Start(testInstance)
		}}
	})
}

func TestLibvirtGoesAwayBeforeEveryCall(t *testing.T) {
	duringEverything(t, allStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{Do: func() { awayFor(d, 3*time.Second) }}
	})
}

func TestLibvirtGoesAwayAfterEveryCallTookEffect(t *testing.T) {
	duringEverything(t, allStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() { awayFor(d, 3*time.Second) }}
	})
}

func TestTheDaemonDiesAtEveryCall(t *testing.T) {
	duringEverything(t, allStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{Do: func() { go d.Restart() }}
	})
}

func TestLibvirtAndTheGuestDieTogetherAtEveryCall(t *testing.T) {
	duringEverything(t, migratetest.ActiveStates, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() {
			_ = d.world.Crash(testInstance)
			awayFor(d, time.Second)
		}}
	})
}

func awayFor(d *daemon, how time.Duration) {
	d.world.Disconnect()
	time.AfterFunc(how, func() {
		d.world.Reconnect()
		d.manager().Wake(true, false)
	})
}
