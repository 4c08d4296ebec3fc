// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// folding makes a complete by hand with a fold that makes no progress by itself.
func (d *daemon) folding() api.Migration {
	d.t.Helper()
	return d.fold(d.copied())
}

func (d *daemon) fold(mig api.Migration) api.Migration {
	d.t.Helper()
	for range 20 {
		d.world.GuestWrites()
	}
	d.world.SetStep(0)
	d.completes(mig)
	for !slices.Contains(d.world.Calls(), "BlockCopy") {
		pass(10 * time.Millisecond)
		synctest.Wait()
	}
	return d.get(mig.ID)
}

// interruptComplete undoes the complete, without a cancel after it.
func (d *daemon) interruptComplete() {
	d.t.Helper()
	for _, st := range d.runner().Active() {
		if st.Op.Kind == move.KindComplete {
			must(d.t, d.runner().Interrupt(st.Op.ID, api.Errorf(api.CodeInternal, "it was interrupted")))
		}
	}
}

// The guest is destroyed, libvirt or the daemon dies, or a person resumes the guest, at each call
// of a cancel during a fold.
func TestACancelInTheFoldLosesNothingWhateverHappensAtEveryCall(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(d *daemon) hvtest.Fault
	}{
		{"nothing", func(*daemon) hvtest.Fault { return hvtest.Fault{} }},
		{"libvirt goes away after", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() { awayFor(d, 3*time.Second) }}
		}},
		{"the daemon dies", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { go d.Restart() }}
		}},
		{"the guest is destroyed", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { _ = d.world.Destroy(testInstance) }}
		}},
		{"the guest is started anew", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{After: true, Do: func() {
				_ = d.world.Crash(testInstance)
				_ = d.world.Start(testInstance)
			}}
		}},
		{"the job meets an I/O error", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() { _ = d.world.BreakJob(testInstance, "vda") }}
		}},
		{"the guest is resumed by hand", func(d *daemon) hvtest.Fault {
			return hvtest.Fault{Do: func() {
				// The op cannot detect a change between its last look and the call.
				if calls := d.world.Calls(); calls[len(calls)-1] == "AbortJob" {
					return
				}
				_ = d.world.ResumeByUser(testInstance) // or it runs
			}}
		}},
	} {
		for _, state := range migratetest.ActiveStates {
			if state == hv.StatePaused && c.name == "the guest is resumed by hand" {
				continue // the same as a guest that ran
			}
			t.Run(c.name+", "+string(state), func(t *testing.T) {
				everyCall(t, hv.StateRunning, func(t *testing.T, d *daemon, fault hvtest.Fault) {
					mig := d.folding()
					if state == hv.StatePaused {
						must(t, d.world.SuspendByUser(testInstance))
					}
					d.world.SetStep(2)
					d.world.Inject(fault)
					for {
						_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
						if code := api.CodeOf(err); code == api.CodeHypervisorUnavailable {
							pass(time.Second)
							continue
						} else if code == api.CodePastPointOfNoReturn {
							return
						}
						if err == nil {
							break
						}
						pass(time.Second) // the daemon dies during the delay
					}
					d.until(mig.ID, api.MigrationCancelled)
					calm(d)
					d.stayed()
				}, c.happen)
			})
		}
	}
}

// A failed complete leaves its job, which the next one adopts.
func TestACompleteTakesUpTheJobOfTheOneBefore(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.folding()
		d.interruptComplete()
		mig = d.until(mig.ID, api.MigrationCopied)
		if mig.Phase != string(api.MigrationCopied) || mig.BytesDone != mig.BytesTotal || mig.Error == nil {
			t.Errorf("the migration shows phase %s, %d of %d bytes, %v", mig.Phase, mig.BytesDone, mig.BytesTotal, mig.Error)
		}
		for range 10 {
			d.world.GuestWrites()
		}
		d.world.SetStep(2)
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		begun := slices.DeleteFunc(d.world.Calls(), func(call string) bool { return call != "BlockCopy" && call != "AbortJob" })
		if len(begun) != 1 {
			t.Errorf("the calls were %v, want one job", begun)
		}
	})
}

func TestACopyIsRefusedWhileTheJobOfACompleteIsLeft(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		external := toNewPool
		external.ExternalCopy = true
		mig := d.begin(external)
		must(t, d.world.Copy(srcPath, mig.Dst.Path))
		mig = d.fold(mig)
		d.interruptComplete()
		d.until(mig.ID, api.MigrationStarted)
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		if api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("copy: %v, want state_forbidden", err)
		}
		d.world.SetStep(2)
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

// A person pauses the guest after the job was ended, and then the cancel is undone.
func TestACancelThatIsUndoneDoesNotEndAPauseOfSomebodyElse(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.folding()
		d.journal.AfterAppend(func(r op.Record) {
			if r.Step == "commit" && r.Kind == op.EventStarted {
				d.journal.AfterAppend(nil)
				must(t, d.world.SuspendByUser(testInstance))
				for _, st := range d.runner().Active() {
					_ = d.runner().Interrupt(st.Op.ID, api.Errorf(api.CodeInternal, "it was interrupted"))
				}
			}
		})
		_, id, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		if refused := d.ended(id); refused == nil {
			t.Fatal("the cancel was not undone")
		}
		dom, err := d.world.Fake.Domain(context.Background(), testInstance)
		must(t, err)
		if dom.State != hv.StatePaused {
			t.Errorf("the guest is %s, and a person had paused it", dom.State)
		}
	})
}

// The host is fenced in the pause for the end of a job.
func TestAFenceDoesNotLeaveTheGuestPausedWhenAJobIsEnded(t *testing.T) {
	for _, call := range []string{"Suspend", "AbortJob"} {
		for _, mirror := range []bool{false, true} {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				var mig api.Migration
				if mirror {
					mig = d.mirroring(mirrorToNewPool)
				} else {
					mig = d.folding()
				}
				d.world.SetStep(2)
				d.world.Inject(hvtest.Fault{Call: call, Do: d.fenced})
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				pass(time.Minute)
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if dom.State != hv.StateRunning {
					t.Errorf("fenced at %s, the guest is %s", call, dom.State)
				}
				d.rejoined()
				d.until(mig.ID, api.MigrationCancelled)
				d.stayed()
			})
		}
	}
}
