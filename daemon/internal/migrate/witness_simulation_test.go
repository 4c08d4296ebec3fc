// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// A libvirtd that dies inside a call restarts with its old status, and shows the old chain and jobs
// as long as the guest's process lives. At any call, no image of the guest is deleted or released,
// and after the guest was stopped and started again the migration ends well.
func TestLibvirtdDiesInsideACallAndShowsTheOldChainForEver(t *testing.T) {
	for _, method := range []string{move.MethodOverlay, move.MethodMirror} {
		for _, call := range []string{"Snapshot", "BlockCopy", "CommitActive", "Pivot", "AbortJob"} {
			for _, what := range []move.Goal{move.GoalComplete, move.GoalCancel} {
				for _, state := range migratetest.ActiveStates {
					t.Run(method+" "+call+" "+string(what)+" "+string(state), func(t *testing.T) {
						inBubblesOf(t, method, state, func(t *testing.T, d *daemon) { simulateStaleLibvirt(t, d, method, call, what) })
					})
				}
			}
		}
	}
}

// inBubblesOf is inBubble on each kind of world with a move of a running guest's volume by a
// method.
func inBubblesOf(t *testing.T, method string, state hv.State, f func(t *testing.T, d *daemon)) {
	t.Helper()
	if method != move.MethodOverlay {
		inBubble(t, state, f)
		return
	}
	migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
		inBubbleOn(t, world, state, f)
	})
}

func simulateStaleLibvirt(t *testing.T, d *daemon, method, call string, what move.Goal) {
	t.Helper()
	target := d.world.To
	target.Method = method
	d.world.Copier.Gate = make(chan struct{})
	d.world.DieInside(testInstance, call, 1, func() { awayFor(d, 3*time.Second) })
	id := d.migrateTo(target)
	pass(time.Second)
	if what == move.GoalCancel {
		_, _, _ = d.manager().Cancel(context.Background(), d.call(id)) // a request that is too early is repeated
	}
	close(d.world.Copier.Gate)
	for range 10 {
		mig := d.untilItStands(id)
		if mig.State.Final() {
			break
		}
		staysWhole(t, d, mig)
		standsStill(t, d, mig)
		if mig.State == api.MigrationNeedsOperator && mig.KnownCure() != "" {
			d.follow(mig)
			continue
		}
		_ = d.world.Destroy(testInstance)
		must(t, d.world.Start(testInstance))
		staysWhole(t, d, mig)
		askAgain(d, &mig, what)
	}
	calm(d)
	switch mig, err := d.manager().Get(context.Background(), id); {
	case err != nil:
		t.Fatal(err)
	case mig.State == api.MigrationCompleted:
		d.moved(mig)
	case mig.State.Final():
		d.stayed()
	default:
		t.Errorf("the migration is %s in the end: %v", mig.State, mig.Error)
	}
}

// A libvirtd that dies while it handles the end of a job restarts without the guest, and the
// guest's process remains, paused for the switch. virsh does not reach it: a person has to end it,
// and nothing is lost, in either direction of the migration.
func TestAGuestThatLibvirtLosesInTheSwitchIsNamedByItsProcess(t *testing.T) {
	for _, c := range []struct {
		method string
		what   move.Goal
	}{{move.MethodOverlay, move.GoalComplete}, {move.MethodOverlay, move.GoalCancel}, {move.MethodMirror, move.GoalComplete}} {
		t.Run(c.method+" "+string(c.what), func(t *testing.T) {
			inBubblesOf(t, c.method, hv.StateRunning, func(t *testing.T, d *daemon) { simulateLostGuest(t, d, c.method, c.what) })
		})
	}
}

func simulateLostGuest(t *testing.T, d *daemon, method string, what move.Goal) {
	t.Helper()
	d.world.Copier.Gate = make(chan struct{})
	d.world.Fake.Inject(hvtest.Fault{Call: "Pivot", Nth: 1, After: true, Err: hv.ErrUnavailable, Do: func() { _ = d.world.Fake.Lose(testInstance) }})
	target := d.world.To
	target.Method = method
	id := d.migrateTo(target)
	pass(time.Second)
	if what == move.GoalCancel {
		_, _, err := d.manager().Cancel(context.Background(), d.call(id))
		must(t, err)
	}
	close(d.world.Copier.Gate)
	mig := d.untilItStands(id)
	if mig.State != api.MigrationNeedsOperator || mig.Error == nil {
		t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
	}
	for _, part := range []string{"as stopped", "while process 1", "A guest that libvirt has lost", "complete or cancel of migration " + id} {
		if !strings.Contains(mig.Error.Message, part) {
			t.Errorf("the message lacks %q: %s", part, mig.Error.Message)
		}
	}
	staysWhole(t, d, mig)
	if err := d.manager().Monitor.MayStart(context.Background(), testInstance); err == nil {
		t.Error("the instance may be started beside its process")
	}
	w, err := d.manager().Which.Find(context.Background(), d.world.Registry.CurrentVolume())
	if err != nil || w.Authoritative != nil || w.Agree || !strings.Contains(w.Explanation, "A guest that libvirt has lost") {
		t.Errorf("which is %+v, %v", w, err)
	}
	must(t, d.world.Fake.Crash(testInstance))
	askAgain(d, &mig, what)
	calm(d)
	switch mig, err := d.manager().Get(context.Background(), id); {
	case err != nil:
		t.Fatal(err)
	case what == move.GoalComplete && mig.State == api.MigrationCompleted:
		d.moved(mig)
	case what == move.GoalCancel && mig.State == api.MigrationCancelled:
		d.stayed()
	default:
		t.Errorf("the migration is %s in the end: %v", mig.State, mig.Error)
	}
}

// untilItStands waits until the migration has ended, or nothing happens any more.
func (d *daemon) untilItStands(id string) api.Migration {
	d.t.Helper()
	pass(10 * time.Minute)
	synctest.Wait()
	mig, err := d.manager().Get(context.Background(), id)
	must(d.t, err)
	return mig
}

// askAgain simulates a person who has stopped and started the guest as advised.
func askAgain(d *daemon, mig *api.Migration, what move.Goal) {
	if what == move.GoalComplete {
		_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		if err == nil {
			return
		}
		if _, _, err := d.manager().Copy(context.Background(), d.call(mig.ID)); err == nil {
			return
		}
	}
	_, _, _ = d.manager().Cancel(context.Background(), d.call(mig.ID)) // refused: the next round asks again
}

// staysWhole fails the test if the guest's process, or the chain of its next start, lacks an
// acknowledged write, or if the registry's lock is gone. Only a guest that may be on src or on the
// overlay may stay paused.
func staysWhole(t *testing.T, d *daemon, mig api.Migration) {
	t.Helper()
	r := &hosttest.Recorder{}
	d.world.AssertNoWriteLost(r)
	for _, err := range r.Problems {
		t.Error(err)
	}
	if d.world.Registry.CurrentVolume().MigrationID == "" {
		t.Error("the registry's lock was given back though the witnesses disagree")
	}
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(t, err)
	unsure := mig.Error != nil && strings.Contains(mig.Error.Message, "must not be resumed")
	if dom.State == hv.StatePaused && dom.PauseReason == hv.PauseUser && !d.world.PausedByUser(testInstance) && !unsure {
		t.Error("the guest is left paused")
	}
}

// standsStill fails the test if a guest runs that must not be resumed: neither src nor the overlay
// would then have all its writes.
func standsStill(t *testing.T, d *daemon, mig api.Migration) {
	t.Helper()
	if mig.Error == nil || !strings.Contains(mig.Error.Message, "must not be resumed") {
		return
	}
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(t, err)
	if dom.State == hv.StateRunning {
		t.Errorf("the guest runs, and the operator is told: %s", mig.Error.Message)
	}
}

// libvirtd dies in the pivot of a cancel after it has saved the definition, and shows the overlay
// from then on. A person resumes the guest, against the message: it is on src, and so is the
// definition. The overlay must not be put back: its fold would undo the guest's writes.
func TestAGuestThatRanOnSrcInThePivotOfACancelIsLeftThere(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.DieInside(testInstance, "Pivot", 1, func() {
			must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{d.world.Src}))
			awayFor(d, time.Second)
		})
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationNeedsOperator)
		must(t, d.world.Resume(context.Background(), testInstance))
		d.world.GuestWrites()
		must(t, d.world.Stop(testInstance))
		pass(time.Minute)
		if err := d.manager().Monitor.MayStart(context.Background(), testInstance); err != nil {
			t.Errorf("it may not start: %v", err)
		}
		must(t, d.manager().Monitor.NameStanding(context.Background(), testInstance))
		if at := d.definition()[0].Path; at != d.world.Src.Path {
			t.Errorf("its definition names %s", at)
		}
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		calm(d)
		if err := d.world.Settled(d.world.Src.Path); err != nil {
			t.Error(err)
		}
	})
}

// libvirtd dies in the pivot of a background job, and shows the overlay from then on, as does its
// definition. A person resumes the guest, against the message, and it goes off: only the end has
// its writes, and no fold of the overlay undoes them, in either direction of the move.
func TestAGuestThatRanBehindAPivotOfWhichNobodyKnowsIsNotFoldedOver(t *testing.T) {
	for _, c := range []struct {
		name  string
		world func(*testing.T, hv.State) *migratetest.World
		ends  api.MigrationState
		call  func(*Manager, context.Context, Call) (api.Migration, string, error)
	}{
		{"complete", migratetest.KeepBaseWorld, api.MigrationCompleted, (*Manager).Complete},
		{"cancel", migratetest.NewWorld, api.MigrationCancelled, (*Manager).Cancel},
	} {
		for _, right := range []string{"end", "overlay"} {
			t.Run(c.name+", "+right, func(t *testing.T) {
				inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
					ranBehindAPivot(t, d, right, c.ends, c.call)
				})
			})
		}
	}
}

func ranBehindAPivot(t *testing.T, d *daemon, right string, ends api.MigrationState, call func(*Manager, context.Context, Call) (api.Migration, string, error)) {
	t.Helper()
	mig := d.copied()
	d.world.DieInside(testInstance, "Pivot", 1, func() { awayFor(d, time.Second) })
	again := func() {
		t.Helper()
		_, _, err := call(d.manager(), context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
	}
	again()
	if e := d.until(mig.ID, api.MigrationNeedsOperator).Error; !strings.Contains(e.Message, "must not be resumed") {
		t.Fatalf("it waits with %v", e)
	}
	must(t, d.world.Resume(context.Background(), testInstance))
	d.world.GuestWrites()
	d.world.SetQuiet()
	again()
	if e := d.untilItStands(mig.ID).Error; e == nil || !strings.Contains(e.Message, "do not start it") {
		t.Errorf("of the guest that runs it says %v", e)
	}
	end := mig.Dst.Path
	if ends == api.MigrationCancelled {
		end = mig.Src.Path
	}
	wrote, err := d.world.AuthoritativeContent(testInstance, "vda")
	must(t, err)
	must(t, d.world.Stop(testInstance))
	d.world.OnStart = nil
	if at := d.definition()[0].Path; at != overlayOf(mig) {
		t.Fatalf("the definition names %s: the test is none", at)
	}
	pass(time.Minute)
	if d.manager().Monitor.MayStart(context.Background(), testInstance) == nil {
		t.Error("it may be started on the overlay, which lacks what it wrote")
	}
	for range 2 {
		again()
		if e := d.until(mig.ID, api.MigrationNeedsOperator).Error; !strings.Contains(e.Message, "either may have what the other lacks") {
			t.Fatalf("it waits with %v", e)
		}
		d.reads(t, end, wrote)
	}
	if err := d.manager().Monitor.NameStanding(context.Background(), testInstance); api.CodeOf(err) != api.CodeChainChanged && ends == api.MigrationCancelled {
		t.Errorf("the definition was named after one of the two: %v", err)
	}
	d.manager().Epoch(9) // the host was fenced, and has rejoined
	// These are the steps of docs/how-to/recover.md, in either case.
	if right == "end" {
		for block, value := range wrote {
			must(t, d.world.WriteBlock(overlayOf(mig), block, value))
		}
	} else {
		content, err := d.world.ReadImage(overlayOf(mig))
		must(t, err)
		for block, value := range content {
			must(t, d.world.WriteBlock(end, block, value))
		}
	}
	again()
	d.until(mig.ID, ends)
	if right == "end" {
		d.reads(t, end, wrote)
	}
	if d.manager().Monitor.MayStart(context.Background(), testInstance) != nil {
		t.Error("it may not be started now that all is over")
	}
}

func (d *daemon) reads(t *testing.T, path string, want map[int64]uint64) {
	t.Helper()
	content, err := d.world.ReadImage(path)
	must(t, err)
	if !maps.Equal(content, want) {
		t.Errorf("%s reads %v, want %v", path, content, want)
	}
}

// A guest that continues in the end is paused as long as libvirtd is unavailable, and three seconds
// for the witnesses.
func TestAGuestDoesNotStandStillForLongWhereTheWitnessesDisagree(t *testing.T) {
	const away, most = 2 * time.Second, 6 * time.Second
	for _, method := range []string{move.MethodOverlay, move.MethodMirror} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				var struck time.Time
				d.world.DieInside(testInstance, "Pivot", 1, func() { struck = time.Now(); awayFor(d, away) })
				target := d.world.To
				target.Method = method
				id := d.migrateTo(target)
				var ranOn time.Time
				for ranOn.IsZero() && (struck.IsZero() || time.Since(struck) < time.Minute) {
					pass(100 * time.Millisecond)
					dom, err := d.world.Fake.Domain(context.Background(), testInstance)
					if !struck.IsZero() && err == nil && dom.State == hv.StateRunning {
						ranOn = time.Now()
					}
				}
				if stood := ranOn.Sub(struck); ranOn.IsZero() || stood > most {
					t.Errorf("it stood still for %s", stood)
				}
				if mig := d.untilItStands(id); mig.State != api.MigrationNeedsOperator {
					t.Errorf("the migration is %s: the witnesses agreed", mig.State)
				}
			})
		})
	}
}

// QEMU has the job then, and libvirt can neither end it nor begin another.
func TestAJobThatLibvirtDoesNotKnowOfIsNamedWithTheWayOut(t *testing.T) {
	for _, method := range []string{move.MethodOverlay, move.MethodMirror} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.world.DieInside(testInstance, "BlockCopy", 1, func() { awayFor(d, 3*time.Second) })
				mig := d.untilItStands(d.migrateTo(api.MigrationTarget{ToPool: "new", Method: method}))
				for _, what := range []move.Goal{move.GoalComplete, move.GoalCancel} {
					if mig.State.Final() || mig.Error == nil {
						t.Fatalf("the migration is %s: %v", mig.State, mig.Error)
					}
					for _, part := range []string{"and dst open", "shut it down, start it again", "complete or cancel of migration " + mig.ID} {
						if !strings.Contains(mig.Error.Message, part) {
							t.Errorf("before %s the message lacks %q: %s", what, part, mig.Error.Message)
						}
					}
					askAgain(d, &mig, what)
					mig = d.untilItStands(mig.ID)
				}
				staysWhole(t, d, mig)
			})
		})
	}
}
