// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// away makes the registry unavailable for a while.
func (d *daemon) away(how time.Duration) {
	d.world.Registry.SetDown(true)
	time.AfterFunc(how, func() {
		d.world.Registry.SetDown(false)
		d.manager().Wake(false, true)
	})
}

// everyRegistryCall repeats a migration, with the registry unavailable from its first call, then
// from its second, and so on, before or after the call has its effect.
func everyRegistryCall(t *testing.T, state hv.State, run func(t *testing.T, d *daemon)) {
	t.Helper()
	hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
		atEveryCall(t, state, func(t *testing.T, d *daemon, n int) bool {
			moments := d.world.Registry.Moments
			moments.Arrange(n, hosttest.Happening{After: after, Lose: true, Do: func() { d.away(time.Minute) }})
			run(t, d)
			return moments.Happened()
		})
	})
}

// asked repeats a call until the registry answers, like a client, and checks that a refusal has
// changed nothing.
func (d *daemon) asked(call func() error) {
	d.t.Helper()
	for {
		err := call()
		if api.CodeOf(err) != api.CodeRegistryUnavailable {
			must(d.t, err)
			return
		}
		if list, err := d.manager().List(context.Background(), true); err != nil || len(list) != 0 {
			d.t.Errorf("a call was refused and left %v (%v)", list, err)
		}
		pass(time.Second)
	}
}

func TestARegistryThatGoesAwayAtAnyCallIsCaughtUpWith(t *testing.T) {
	for _, method := range []string{api.MethodAuto, move.MethodMirror} {
		for _, state := range allStates {
			t.Run(method+", "+string(state), func(t *testing.T) {
				everyRegistryCall(t, state, func(_ *testing.T, d *daemon) {
					req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Composite: true, Target: api.MigrationTarget{ToPool: "new", Method: method}}
					var id string
					d.asked(func() error {
						mig, err := d.manager().Start(context.Background(), req)
						id = mig.ID
						return err
					})
					d.moved(d.until(id, api.MigrationCompleted))
				})
			})
		}
	}
	for _, state := range allStates {
		t.Run("cancel, "+string(state), func(t *testing.T) {
			everyRegistryCall(t, state, func(_ *testing.T, d *daemon) {
				req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool}
				var mig api.Migration
				d.asked(func() (err error) {
					mig, err = d.manager().Start(context.Background(), req)
					return err
				})
				d.until(mig.ID, api.MigrationStarted)
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(d.t, err)
				d.until(mig.ID, api.MigrationCancelled)
				d.gone(mig)
			})
		})
	}
}

func TestAStartWithoutTheRegistryTouchesNothing(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.Registry.SetDown(true)
			before := len(d.world.Calls())
			req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true}
			if _, err := d.manager().Start(context.Background(), req); api.CodeOf(err) != api.CodeRegistryUnavailable {
				t.Errorf("start: %v, want registry_unavailable", err)
			}
			if n := len(d.world.Calls()); n != before {
				t.Errorf("libvirt was called %d times", n-before)
			}
			d.world.Registry.SetDown(false)
			mig, err := d.manager().Start(context.Background(), req) // the same op id may be used again
			must(t, err)
			d.moved(d.until(mig.ID, api.MigrationCompleted))
		})
	}
}

// The registry becomes unavailable between the look and the lock: nothing is changed before it has
// granted the lock.
func TestWithoutTheLockNothingIsTouched(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Pools", Do: func() { d.world.Registry.SetDown(true) }})
		mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
		must(t, err)
		synctest.Wait() // the answer may be from the moment before it begins to wait
		mig, err = d.manager().Get(context.Background(), mig.ID)
		must(t, err)
		if mig.State != api.MigrationStarting || mig.Phase != "waiting for registry" {
			t.Errorf("the migration is %s (%s)", mig.State, mig.Phase)
		}
		if d.world.Exists(mig.Dst.Path) || d.world.Exists(overlayOf(mig)) {
			t.Error("something was made without the lock")
		}
		d.world.Registry.SetDown(false)
		d.manager().Wake(false, true)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestTheCopyGoesOnWithoutTheRegistry(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.world.Registry.SetDown(true)
		close(d.world.Copier.Gate)
		d.until(id, api.MigrationCompleting) // the copy is made
		pass(time.Minute)
		mig := d.get(id)
		if mig.Phase != "waiting for registry" {
			t.Errorf("the complete is at %q", mig.Phase)
		}
		d.onOverlay(mig)
		d.world.Registry.SetDown(false)
		d.manager().Wake(false, true)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

// onOverlay checks that the guest runs on its overlay, unpaused and without a job.
func (d *daemon) onOverlay(mig api.Migration) {
	d.t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(d.t, err)
	if live := dom.LiveDisk("vda"); live.Top().Path != overlayOf(mig) || live.Mirror != nil || dom.State != hv.StateRunning {
		d.t.Errorf("the guest is %s on %+v", dom.State, live)
	}
}

func TestACompleteByHandIsRefusedWithoutTheRegistry(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Registry.SetDown(true)
		_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		if api.CodeOf(err) != api.CodeRegistryUnavailable {
			t.Errorf("complete: %v, want registry_unavailable", err)
		}
		d.onOverlay(mig)
		if got := d.get(mig.ID); got.State != api.MigrationCopied {
			t.Errorf("the migration is %s", got.State)
		}
	})
}

func TestAReadyMirrorIsHeldUntilTheRegistryIsBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.mirroring(mirrorToNewPool)
		d.world.Registry.SetDown(true)
		d.world.SetStep(2)
		d.until(mig.ID, api.MigrationCompleting)
		pass(time.Hour + time.Second)
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		live := dom.LiveDisk("vda")
		if live.Top().Path != srcPath || live.Mirror == nil || !live.Mirror.Ready || dom.State != hv.StateRunning {
			t.Errorf("the guest is %s on %+v, want it on src with the mirror ready", dom.State, live)
		}
		if got := d.get(mig.ID); got.Phase != "waiting for registry" {
			t.Errorf("it is at %q", got.Phase)
		}
		d.world.Registry.SetDown(false)
		d.manager().Wake(false, true)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestACancelRunsWithoutTheRegistryAndTellsItLater(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.Copier.Gate = make(chan struct{})
			mig := d.mirroring(target)
			d.world.SetStep(2)
			d.world.Registry.SetDown(true)
			_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
			must(t, err)
			pass(time.Hour + time.Second)
			if err := d.world.Settled(srcPath); err != nil {
				t.Error(err)
			}
			if got := d.get(mig.ID); got.State != api.MigrationCancelling || got.Phase != "waiting for registry" {
				t.Errorf("the migration is %s (%s)", got.State, got.Phase)
			}
			if d.world.Registry.CurrentVolume().MigrationID == "" {
				t.Error("the registry gave the lock back unasked")
			}
			d.world.Registry.SetDown(false)
			d.manager().Wake(false, true)
			d.until(mig.ID, api.MigrationCancelled)
			d.gone(mig)
		})
	}
}

func TestTheRefusalOfAStartIsTheAnswerHoweverOftenItIsAskedFor(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Pools", Do: func() { // after the look at the volume
			d.world.Registry.Lock()
			defer d.world.Registry.Unlock()
			d.world.Registry.Vol.MigrationID = testMigration
		}})
		req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true}
		for range 3 {
			if mig, err := d.manager().Start(context.Background(), req); api.CodeOf(err) != api.CodeMigrationActive {
				t.Errorf("start: %s %s (%v), want migration_active", mig.ID, mig.State, err)
			}
		}
	})
}

func TestAStartThatGotItsLockIsAMigrationWhateverBecomesOfIt(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "CreateVolume", Err: hv.ErrUnsupported})
		req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true}
		mig, err := d.manager().Start(context.Background(), req)
		must(t, err)
		pass(time.Minute)
		again, err := d.manager().Start(context.Background(), req)
		must(t, err)
		if again.ID != mig.ID || again.State != api.MigrationError || again.Error == nil {
			t.Errorf("the migration is %s %s (%v), want %s in error", again.ID, again.State, again.Error, mig.ID)
		}
		d.gone(mig)
	})
}

func TestARetypeIsToldTheRegistry(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.moved(d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", ToType: "shared"}), api.MigrationCompleted))
		if got := d.world.Registry.Last.ToType; got != "shared" {
			t.Errorf("the registry was asked for type %q, want shared", got)
		}
	})
}
