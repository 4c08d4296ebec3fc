// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func (d *daemon) watched() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.manager().Monitor.WatchChains(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-ended })
}

func overlayChainOf(mig api.Migration) []hv.Image {
	return []hv.Image{{Type: hv.SourceFile, Format: "qcow2", Path: overlayOf(mig)}, rawImage(srcPath)}
}

// A person defines the domain from an XML from before the migration (virsh define old.xml).
func TestADefinitionThatIsPutBackIsGuardedAtOnceUntilItIsRight(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.watched()
		mig := d.begin(toNewPool)
		for range 20 {
			d.world.GuestWrites()
		}
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		synctest.Wait() // no time passes: the event is enough
		problems := d.manager().Monitor.ChainProblems()
		if len(problems) != 1 || !strings.Contains(problems[0].Message, overlayOf(mig)) {
			t.Fatalf("the watch has found %+v, want the overlay that the definition misses", problems)
		}
		if err := d.manager().Monitor.MayStart(ctx, testInstance); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("a start may be: %v", err)
		}
		_ = d.world.Destroy(testInstance)
		if err := d.world.Start(testInstance); err == nil {
			t.Error("the instance was started on src")
		}
		_, opID, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		if refused := d.ended(opID); refused == nil || refused.Code != api.CodeChainChanged {
			t.Errorf("cancel ended with %v, want chain_changed", refused)
		}
		if got := d.get(mig.ID).State; got != api.MigrationStarted {
			t.Errorf("the migration is %s, want started: the cancel could not begin", got)
		}
		misnamed, err := d.manager().Monitor.Misnamed(ctx, testInstance, false)
		must(t, err)
		if diff := cmp.Diff([]hv.NamedChain{{Target: "vda", Chain: overlayChainOf(mig)}}, misnamed); diff != "" {
			t.Fatalf("what the definition is to name (-want +got)\n%s", diff)
		}
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", misnamed[0].Chain))
		if misnamed, err = d.manager().Monitor.Misnamed(ctx, testInstance, false); err != nil || len(misnamed) > 0 {
			t.Errorf("once it does: %+v, %v", misnamed, err)
		}
		synctest.Wait()
		must(t, d.manager().Monitor.MayStart(ctx, testInstance))
		must(t, d.world.Start(testInstance))
		_, _, err = d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		pass(2 * monitor.ChainWatchEvery)
		d.stayed()
	})
}

// A copy takes hours, and a change of the chain meanwhile makes it useless.
func TestWhatSomebodyDoesToTheChainIsFoundWhileTheCopyRuns(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		pass(2 * monitor.ChainWatchEvery)
		if got := d.manager().Monitor.ChainProblems(); len(got) > 0 {
			t.Fatalf("before anybody did anything: %+v", got)
		}
		d.world.CommitByUser(t)
		pass(2 * monitor.ChainWatchEvery)
		if got := d.manager().Monitor.ChainProblems(); len(got) != 1 || got[0].MigrationID != id {
			t.Errorf("the watch has found %+v, want the migration", got)
		}
		if got := d.get(id).State; got != api.MigrationCopying {
			t.Errorf("the migration is %s: the copy does not run any more, which proves nothing", got)
		}
		close(d.world.Copier.Gate)
	})
}

// The definition is corrected while another op has the key of the instance, so the watch does not
// look then; and the cancel takes some time.
func TestWhatACancelHasSettledIsNoProblemAnyMore(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.watched()
		mig := d.begin(toNewPool)
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		synctest.Wait()
		if len(d.manager().Monitor.ChainProblems()) != 1 {
			t.Fatal("the watch has found nothing")
		}
		d.runner().TryLock([]string{request.InstanceKey(testInstance)}, func() {
			must(t, d.world.SetConfigChain(ctx, testInstance, "vda", overlayChainOf(mig)))
			synctest.Wait()
		})
		if len(d.manager().Monitor.ChainProblems()) != 1 {
			t.Fatal("the watch has looked in between, which proves nothing")
		}
		d.journal.AfterAppend(func(op.Record) { <-time.After(100 * time.Millisecond) })
		began := time.Now()
		_, _, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		pass(time.Second)
		if took := time.Since(began); took > monitor.ChainWatchEvery/2 {
			t.Fatalf("the cancel took %s: the watch may have looked because of the time", took)
		}
		if got := d.manager().Monitor.ChainProblems(); len(got) > 0 {
			t.Errorf("still found: %+v", got)
		}
		must(t, d.world.Start(testInstance))
	})
}

// The guest has run on src, so the overlay does not match src.
func TestAnOverlayIsNotNamedAgainOverASrcThatWasWritten(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.begin(toNewPool)
		must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		must(t, d.world.WriteBlock(srcPath, 5, 4711))
		if _, err := d.manager().Monitor.Misnamed(context.Background(), testInstance, false); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("got %v, want chain_changed", err)
		}
	})
}

// foundSnapshot checks that the watch has found the foreign snapshot over the disk of the
// migration, and that it is shown.
func (d *daemon) foundSnapshot(id string) api.ChainProblem {
	d.t.Helper()
	found := d.manager().Monitor.ChainProblems()
	if len(found) != 1 || found[0].MigrationID != id || found[0].Guarded || !strings.Contains(found[0].Message, migratetest.ForeignPath) {
		d.t.Fatalf("the watch has found %+v, want the snapshot", found)
	}
	if shown := d.show(id).ChainProblem; shown == nil || *shown != found[0].ChainProblem {
		d.t.Errorf("the migration shows %+v", shown)
	}
	return found[0].ChainProblem
}

func TestAForeignSnapshotOverTheOverlayIsNoReasonToRefuseAStart(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		mig := d.begin(toNewPool)
		d.world.SnapshotByUser(t)
		pass(2 * monitor.ChainWatchEvery)
		d.foundSnapshot(mig.ID)
		must(t, d.world.Destroy(testInstance))
		pass(monitor.GlanceEvery)
		synctest.Wait()
		if cure := d.foundSnapshot(mig.ID).Cure; cure != "" {
			t.Errorf("with the instance off the cure is %q", cure)
		}
		must(t, d.manager().Monitor.MayStart(context.Background(), testInstance))
		must(t, d.world.Start(testInstance))
	})
}

// The commands of the message merge it, as they are typed.
func TestAForeignSnapshotIsFoundWithinASecondAndGoneWithinOneOfItsMerge(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.world.SnapshotByUser(t)
		pass(monitor.GlanceEvery)
		synctest.Wait()
		d.types(strings.Split(d.foundSnapshot(id).Cure, api.CureSeparator)...)
		pass(monitor.GlanceEvery)
		synctest.Wait()
		if got := d.manager().Monitor.ChainProblems(); len(got) > 0 {
			t.Errorf("still found: %+v", got)
		}
		must(t, d.world.Images.Remove(context.Background(), migratetest.ForeignPath))
		close(d.world.Copier.Gate)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

// The glance of each second asks libvirt one question about the domain, and does not read the
// journal.
func TestTheWatchReadsNothingButTheTopImageWhileNobodyChangesAnything(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		d.begin(toNewPool)
		synctest.Wait()
		before := len(d.world.Calls())
		pass(monitor.ChainWatchEvery / 2)
		calls := d.world.Calls()[before:]
		if n := int(monitor.ChainWatchEvery/2/monitor.GlanceEvery) - 1; len(calls) < n {
			t.Errorf("%d calls in %s, want one each second", len(calls), monitor.ChainWatchEvery/2)
		}
		for _, call := range calls {
			if call != "TopImage" {
				t.Errorf("libvirt was asked for %s", call)
			}
		}
	})
}

// After a restore the guest would have libvirt's chain.
func TestAGuestWhoseWitnessesDisagreeIsNotRestoredFromASave(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		d.world.DieInside(testInstance, "Snapshot", 1, func() { awayFor(d, time.Second) })
		id := d.migrate()
		d.untilItStands(id)
		if len(d.manager().Monitor.ChainProblems()) != 1 {
			t.Fatal("the watch has found nothing")
		}
		must(t, d.world.Save(testInstance))
		pass(2 * monitor.ChainWatchEvery)
		if err := d.world.Start(testInstance); err == nil {
			t.Error("the guest was restored from a save with libvirt's chain")
		}
	})
}

// libvirtd has died in the pivot, and the guest is shut down and started again, as the message
// says: from dst, which its definition names.
func TestAGuestWhoseLibvirtdDiedInThePivotIsStartedFromDst(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.watched()
		d.world.DieInside(testInstance, "Pivot", 1, func() { awayFor(d, time.Second) })
		mig := d.untilItStands(d.migrate())
		if mig.State != api.MigrationNeedsOperator || len(d.manager().Monitor.ChainProblems()) != 1 {
			t.Fatalf("the migration is %s, and the watch has found %v", mig.State, d.manager().Monitor.ChainProblems())
		}
		for range 20 {
			d.world.GuestWrites()
		}
		must(t, d.world.Destroy(testInstance))
		pass(2 * monitor.ChainWatchEvery)
		must(t, d.world.Start(testInstance))
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestAGuardOfTheWatchGoesWithTheMigrationEvenIfTheDaemonDiesInBetween(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		s := move.Spec{MigrationID: mig.ID}
		must(t, d.world.Guards.Set(testInstance, overlay.ChainOwner(&s), "as a daemon saw it that has died"))
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.Restart()
		d.watched()
		synctest.Wait()
		d.stayed()
	})
}

func TestADefinitionThatIsPutBackDuringTheCopyIsRepairedWhileItGoesOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		mig := d.until(id, api.MigrationCopying)
		must(t, d.world.Destroy(testInstance))
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		misnamed, err := d.manager().Monitor.Misnamed(ctx, testInstance, false)
		must(t, err)
		if diff := cmp.Diff([]hv.NamedChain{{Target: "vda", Chain: overlayChainOf(mig)}}, misnamed); diff != "" {
			t.Fatalf("what the definition is to name (-want +got)\n%s", diff)
		}
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", misnamed[0].Chain))
		close(d.world.Copier.Gate)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}
