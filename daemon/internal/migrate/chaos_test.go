// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// Two or three faults happen in one migration, each at a random moment: the seed names the run. The
// other simulations have one fault, at each possible moment.
func TestNoWriteIsLostWhateverHappensAndWhen(t *testing.T) {
	seeds := 1500
	if testing.Short() {
		seeds = 60
	}
	hosttest.EverySeed(t, seeds, func(t *testing.T, rng *rand.Rand) { chaos(t, rng) })
}

func TestOneSeedIsOneRunOfAMigration(t *testing.T) {
	hosttest.SameTwice(t, func(t *testing.T, rng *rand.Rand) []string { return chaos(t, rng).world.Calls() })
}

// chaosCalls is the approximate number of hypervisor calls of a migration.
const chaosCalls = 90

// chaosTimeout is longer than any migration with faults that each end within a minute, in fake
// time. chaosOps is far more than the ops of such a migration: at most 6 in 1500 seeds. A migration
// that starts over again and again makes ever more history, and each look reads all of it: without
// this bound one trial takes minutes of processor time.
const (
	chaosTimeout = 10 * time.Minute
	chaosOps     = 200
)

var changingCalls = []string{"Snapshot", "BlockCopy", "CommitActive", "Suspend", "Resume", "Pivot", "SetConfigChain", "AbortJob"}

// chaos moves the volume, or cancels the move, while one fault happens after the other.
func chaos(t *testing.T, rng *rand.Rand) *daemon {
	worlds := []func(*testing.T, hv.State) *migratetest.World{losing}
	for _, kind := range slices.Sorted(maps.Keys(migratetest.LiveKinds)) { // so that a seed names a run
		worlds = append(worlds, migratetest.LiveKinds[kind])
	}
	world := worlds[rng.IntN(len(worlds))]
	state := allStates[rng.IntN(len(allStates))]
	d := newDaemon(t, world(t, state))
	synctest.Wait()
	for range 2 + rng.IntN(2) {
		what := chaosTroubles[rng.IntN(len(chaosTroubles))]
		how := time.Duration(rng.Int64N(int64(time.Minute)))
		fault := hvtest.Fault{Nth: 1 + rng.IntN(chaosCalls), After: rng.IntN(2) == 0, Do: func() { what(d, how) }}
		if rng.IntN(2) == 0 { // most calls only read
			fault.Call, fault.Nth = changingCalls[rng.IntN(len(changingCalls))], 1+rng.IntN(2)
		}
		d.world.Inject(fault)
	}
	if rng.IntN(2) == 0 {
		how := time.Duration(rng.Int64N(int64(time.Minute)))
		d.world.Registry.Moments.Arrange(1+rng.IntN(10), hosttest.Happening{After: rng.IntN(2) == 0, Lose: true, Do: func() { d.away(how) }})
	}
	cancelAfter := time.Duration(-1)
	if rng.IntN(2) == 0 {
		cancelAfter = time.Duration(rng.Int64N(int64(time.Minute))) >> rng.IntN(10) // most moves end within seconds
	}
	if state != hv.StatePaused { // a guest that is resumed in the switch writes until the resume is undone
		d.world.WatchDefinition()
	}
	endFlushed := d.flushOfTheEnd()
	mig := d.endsSomehow(rng.IntN(2) == 0, cancelAfter)
	d.world.Registry.Moments.Cancel()
	calm(d)
	d.WantIdle()
	if mig.State == api.MigrationCompleted {
		d.moved(mig)
		endFlushed(mig.Dst.Path)
	} else {
		d.stayed()
		endFlushed(mig.Src.Path)
	}
	return d
}

// flushOfTheEnd returns a check whether the end was flushed between a pivot and the removal of the
// overlay, if there was a pivot. An image in memory loses nothing that was not flushed.
func (d *daemon) flushOfTheEnd() (look func(end string)) {
	pivoted := -1
	for nth := 1; nth <= 2; nth++ { // one of them may be refused
		d.world.Inject(hvtest.Fault{Call: "Pivot", Nth: nth, After: true, Do: func() {
			d.world.Images.Mu.Lock()
			defer d.world.Images.Mu.Unlock()
			pivoted = len(d.world.Images.Durable)
		}})
	}
	return func(end string) {
		d.t.Helper()
		if pivoted < 0 {
			return
		}
		done := d.world.Images.Durable[pivoted:]
		gone := slices.IndexFunc(done, func(s string) bool { return strings.HasPrefix(s, "remove /overlays/") })
		if gone < 0 || !slices.Contains(done[:gone], "flush "+end) {
			d.t.Errorf("behind the pivot: %v, want a flush of %s before the overlay is removed", done, end)
		}
	}
}

var chaosTroubles = []func(d *daemon, how time.Duration){
	func(d *daemon, how time.Duration) { awayFor(d, how) },
	func(d *daemon, how time.Duration) { d.away(how) },
	func(d *daemon, _ time.Duration) { d.Restarts.Go(d.Restart) },
	func(d *daemon, _ time.Duration) { _ = d.world.Destroy(testInstance) },
	func(d *daemon, _ time.Duration) { _ = d.world.Crash(testInstance) },
	func(d *daemon, _ time.Duration) { _ = d.world.Start(testInstance) },
	func(d *daemon, _ time.Duration) {
		_ = d.world.Crash(testInstance)
		_ = d.world.Start(testInstance)
	},
	func(d *daemon, how time.Duration) {
		_ = d.world.Crash(testInstance)
		time.AfterFunc(how, func() { _ = d.world.Start(testInstance) })
	},
	func(d *daemon, how time.Duration) { d.world.SetClock(how*120 - time.Hour) },
	func(d *daemon, how time.Duration) { d.journal.FailFor(how) },
	func(d *daemon, _ time.Duration) { d.journal.FailNext(false) },
	func(d *daemon, _ time.Duration) { d.journal.FailNext(true) },
}

// lookEvery is the interval of looks, and requests, while a test waits for the end of a migration.
const lookEvery = 200 * time.Millisecond

// endsSomehow requests a migration, step by step or as a whole, and its cancel after cancelAfter
// unless that is negative. Like a client, it repeats requests after a failure, at growing
// intervals, until the migration has ended: so a move that never ends is found soon.
func (d *daemon) endsSomehow(whole bool, cancelAfter time.Duration) api.Migration {
	d.t.Helper()
	ctx := context.Background()
	req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: d.world.To, Composite: whole}
	mig, err := d.manager().Start(ctx, req)
	began := time.Now()
	for ; err != nil; mig, err = d.manager().Start(ctx, req) {
		if time.Since(began) > chaosTimeout {
			d.t.Fatalf("the start is refused: %v", err)
		}
		pass(time.Second)
	}
	said := &promises{d: d, req: req, mig: mig.ID}
	defer func() { said.kept(mig) }()
	cancels := false
	for began = time.Now(); !mig.State.Final(); pass(max(lookEvery, time.Since(began)/60)) {
		synctest.Wait()
		if mig, err = d.manager().Get(ctx, mig.ID); err != nil {
			d.t.Fatal(err)
		}
		said.look(mig)
		if mig.State == api.MigrationNeedsOperator || time.Since(began) > chaosTimeout {
			d.t.Fatalf("the migration is %s (phase %s, %+v)", mig.State, mig.Phase, mig.Error)
		}
		if ops, err := d.journal.Group(ctx, mig.ID); err == nil && len(ops) > chaosOps {
			d.t.Fatalf("the migration starts over again and again: it has %d ops, and is %s (phase %s, %+v)", len(ops), mig.State, mig.Phase, mig.Error)
		}
		// A request to an unavailable program, or too late, is refused; it is repeated, or the
		// migration ends.
		switch {
		case cancelAfter >= 0 && time.Since(began) >= cancelAfter && (!cancels || mig.Error != nil):
			_, _, err := d.manager().Cancel(ctx, d.call(mig.ID))
			said.cancelled(err)
			cancels = cancels || err == nil
		case (!whole || mig.Error != nil) && mig.State == api.MigrationStarted:
			_, _, _ = d.manager().Copy(ctx, d.call(mig.ID))
		case !whole && mig.State == api.MigrationCopied, mig.Error != nil && (mig.State == api.MigrationCopied || mig.State == api.MigrationCompleting):
			_, _, _ = d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		}
	}
	return mig
}
