// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// connectorWorlds are worlds with moves that use the verbs create and delete, or connect, copy and
// disconnect.
var connectorWorlds = map[string]func(*testing.T, hv.State) *migratetest.World{
	"between arrays": migratetest.ArrayWorld, "of a target": migratetest.TargetWorld,
}

// This shows which verbs the simulations below use.
func TestAMoveTakesEachVerbOfAConnectorButExtend(t *testing.T) {
	for name, want := range map[string][]string{
		"between arrays": {connector.VerbCreate, connector.VerbDelete},
		"of a target":    {connector.VerbConnect, connector.VerbCopy, connector.VerbCopy, connector.VerbDisconnect},
	} {
		inBubbleOn(t, connectorWorlds[name], hv.StateRunning, func(t *testing.T, d *daemon) {
			moments := &hosttest.Moments{}
			d.world.Connectors.Moments = moments
			moments.Arrange(0, hosttest.Happening{})
			d.nothingIsLeft(d.until(d.migrate(), api.MigrationCompleted))
			if got := moments.Calls(); !slices.Equal(got, want) {
				t.Errorf("a move %s takes %v, want %v", name, got, want)
			}
		})
	}
}

// onConnectorWorlds runs a test in each of them, with a running guest and with a guest that is off.
func onConnectorWorlds(t *testing.T, test func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State)) {
	t.Helper()
	for name, world := range connectorWorlds {
		for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
			t.Run(name+", "+string(state), func(t *testing.T) { test(t, world, state) })
		}
	}
}

// nothingIsLeft checks that the volume is where its move has ended, and that its connector has no
// other volume and no needless connection for it.
func (d *daemon) nothingIsLeft(mig api.Migration) {
	d.t.Helper()
	completed := mig.State == api.MigrationCompleted
	if completed {
		d.moved(mig)
	} else {
		d.stayed()
	}
	src, dst := d.world.Exists(mig.Src.Path), d.world.Exists(mig.Dst.Path)
	if src == completed || dst != completed {
		d.t.Errorf("the move is %s (%v, %s); the device of src is there: %t, that of dst: %t", mig.State, mig.Error, mig.Remark, src, dst)
	}
}

func simulateMove(_ *testing.T, d *daemon, fault hvtest.Fault) {
	d.world.Inject(fault)
	mig := d.endsSomehow(true, -1)
	calm(d)
	d.WantIdle()
	d.nothingIsLeft(mig)
}

// simulateCancelledMove is a cancel, with a fault, of a move with a finished copy.
func simulateCancelledMove(t *testing.T, d *daemon, fault hvtest.Fault) {
	mig := d.begin(d.world.To)
	simulateCancelOf(t, d, mig, fault)
	mig, err := d.manager().Get(context.Background(), mig.ID)
	must(t, err)
	d.nothingIsLeft(mig)
}

// The daemon dies while the program runs, and before and after that: the next daemon repeats or
// undoes each verb.
func TestTheDaemonDiesAtEveryCallOfAConnector(t *testing.T) {
	for name, simulate := range map[string]simulation{"complete": simulateMove, "cancel": simulateCancelledMove} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after its effect %t", name, after), func(t *testing.T) {
				onConnectorWorlds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State) {
					everyCallOn(t, world, state, simulate, func(d *daemon) hvtest.Fault {
						return hvtest.Fault{After: after, Do: func() { go d.Restart() }}
					})
				})
			})
		}
	}
}

// The daemon dies while a program makes dst or connects it, and the next one gives up the move
// before the program has ended.
func TestWhatADeadDaemonHasBegunIsUndoneBehindIt(t *testing.T) {
	onConnectorWorlds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State) {
		synctest.Test(t, func(t *testing.T) {
			d := newDaemon(t, world(t, state))
			d.world.Connectors.Moments = &hosttest.Moments{}
			giveUp := func() { d.world.Inject(hvtest.Fault{Call: "Domains", Err: errors.New("no")}) }
			d.world.Connectors.Moments.Arrange(1, hosttest.Happening{Do: func() { go d.RestartAfter(giveUp) }})
			mig := d.endsSomehow(true, -1)
			calm(d)
			d.WantIdle()
			if mig.State != api.MigrationError {
				t.Errorf("the move is %s, which proves nothing", mig.State)
			}
			d.nothingIsLeft(mig)
		})
	})
}

// A program that runs at that time ends after the move has given it up.
func TestACancelInTheMiddleOfAVerbLeavesNothing(t *testing.T) {
	const longest = 8 * time.Second // a move takes less
	onConnectorWorlds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State) {
		for after := time.Duration(0); after < longest; after += lookEvery {
			t.Run(after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDaemon(t, world(t, state))
					mig := d.endsSomehow(true, after)
					calm(d)
					d.WantIdle()
					d.nothingIsLeft(mig)
				})
			})
		}
	})
}
