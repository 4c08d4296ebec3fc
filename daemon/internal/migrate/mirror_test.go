// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

var mirrorToNewPool = api.MigrationTarget{ToPool: "new", Method: move.MethodMirror}

// get returns the migration after everything that is due now was done.
func (d *daemon) get(id string) api.Migration {
	d.t.Helper()
	synctest.Wait()
	mig, err := d.manager().Get(context.Background(), id)
	must(d.t, err)
	return mig
}

// mirroring begins a mirror that makes no progress by itself.
func (d *daemon) mirroring(target api.MigrationTarget) api.Migration {
	d.t.Helper()
	d.world.SetStep(0)
	id := d.migrateTo(target)
	d.until(id, api.MigrationCopying)
	pass(time.Second)
	return d.get(id)
}

// gone checks that the migration ended without remains.
func (d *daemon) gone(mig api.Migration) {
	d.t.Helper()
	d.stayed()
	if d.world.Exists(mig.Dst.Path) {
		d.t.Errorf("%s is left", mig.Dst.Path)
	}
}

func TestAMirrorNeedsNoOverlayAndNoCopier(t *testing.T) {
	for _, state := range migratetest.ActiveStates {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				mig := d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted)
				d.moved(mig)
				if mig.Method != move.MethodMirror || mig.Verify != move.VerifyNone || mig.ExposedSeconds != 0 {
					t.Errorf("method %s, verify %s, exposed %v s; want mirror, none, 0", mig.Method, mig.Verify, mig.ExposedSeconds)
				}
				for _, call := range d.world.Calls() {
					if call == "Snapshot" {
						t.Error("the disk got an overlay")
					}
				}
				if d.world.Copier.Last.Key != "" {
					t.Error("the copy engine was used")
				}
				if stalled := mig.StallMS.Switch != nil; stalled != (state == hv.StateRunning) {
					t.Errorf("the pause of the switch is %v of a guest that was %s", mig.StallMS.Switch, state)
				}
			})
		})
	}
}

// This depends on libvirt.
func TestADiskOfARunningGuestThatCannotHaveAnOverlayIsMirrored(t *testing.T) {
	for name, set := range map[string]func(*hv.Disk){
		"shareable":               func(d *hv.Disk) { d.Shareable = true },
		"read-only":               func(d *hv.Disk) { d.ReadOnly = true },
		"reports errors":          func(d *hv.Disk) { d.ErrorPolicy = "report" },
		"read-only and shareable": func(d *hv.Disk) { d.ReadOnly, d.Shareable = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				d.world.Redefine(t, func(dom *hv.Domain) { set(&dom.Config[0]) })
				must(t, d.world.Start(testInstance))
				mig := d.until(d.migrate(), api.MigrationCompleted)
				d.moved(mig)
				if mig.Method != move.MethodMirror {
					t.Errorf("the method is %s, want mirror", mig.Method)
				}
			})
		})
	}
}

func TestAMirrorOfWhatDoesNotRunIsMadeOffline(t *testing.T) {
	t.Run("stopped", func(t *testing.T) {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			mig := d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted)
			d.moved(mig)
			if mig.Method != move.MethodOffline || mig.Verify != move.VerifyFull {
				t.Errorf("method %s, verify %s; want offline, full", mig.Method, mig.Verify)
			}
		})
	})
	t.Run("not attached", func(t *testing.T) {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			must(t, d.world.Undefine(testInstance))
			d.world.Unattached()
			if mig := d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted); mig.Method != move.MethodOffline {
				t.Errorf("the method is %s, want offline", mig.Method)
			}
		})
	})
}

func TestWhatAMirrorCannotDoIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		name      string
		target    api.MigrationTarget
		shareable bool
		byHand    bool
		code      api.Code
		says      string
	}{
		{"by hand", mirrorToNewPool, false, true, api.CodeInvalidArgument, "no frozen source"},
		{"external copy", api.MigrationTarget{ToPool: "new", Method: move.MethodMirror, ExternalCopy: true}, false, false, api.CodeInvalidArgument, "frozen source"},
		{"a shareable disk by hand", toNewPool, true, true, api.CodeUnsupportedDisk, "vda of instance web is <shareable/>, so it can only be mirrored while the instance runs, which is not done step by step"},
		{"an external copy of a shareable disk", api.MigrationTarget{ToPool: "new", ExternalCopy: true}, true, false, api.CodeUnsupportedDisk, "is <shareable/>, so it can only be mirrored while the instance runs, which makes no frozen source"},
		{"an overlay on a shareable disk", api.MigrationTarget{ToPool: "new", Method: move.MethodOverlay}, true, false, api.CodeUnsupportedDisk, "there can be no overlay"},
		{"a source that is deleted unverified", api.MigrationTarget{ToPool: "new", Method: move.MethodMirror, DeleteSource: true}, false, false, api.CodeInvalidArgument, "--delete-source needs --verify full"},
		{"verification into qcow2", api.MigrationTarget{ToPool: "new", Method: move.MethodMirror, ToFormat: api.FormatQcow2, CopyOptions: api.CopyOptions{Verify: move.VerifyFull}}, false, false, api.CodeInvalidArgument, "say --verify none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Shareable = c.shareable })
				must(t, d.world.Start(testInstance))
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target, Composite: !c.byHand})
				if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v (%s), want %s that says %q", err, api.CodeOf(err), c.code, c.says)
				}
				d.stayed()
			})
		})
	}
}

func TestTheStepsOfAMirrorAreNotCalledByHand(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.mirroring(mirrorToNewPool)
		calls := func(want api.Code) {
			t.Helper()
			_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
			if api.CodeOf(err) != want {
				t.Errorf("copy: %v, want %s", err, want)
			}
			_, _, err = d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			if api.CodeOf(err) != want {
				t.Errorf("complete: %v, want %s", err, want)
			}
		}
		calls(api.CodeStateForbidden)
		d.world.SetStep(2)
		d.until(mig.ID, api.MigrationCompleted)
		calls(api.CodeNoMigration)
	})
}

func TestAMirrorShowsItsProgressAndFollowsItsCap(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.SetQuiet()
		capped := mirrorToNewPool
		capped.BandwidthBytesPerSecond = 1000
		mig := d.mirroring(capped)
		bandwidth := func(want int64) {
			t.Helper()
			job, err := d.world.Job(context.Background(), testInstance, "vda")
			if err != nil || job == nil || job.BandwidthBytesPerSecond != want {
				t.Errorf("the job is %+v (%v), want a cap of %d", job, err, want)
			}
		}
		bandwidth(1000)
		for _, bps := range []int64{500, 0} {
			_, err := d.manager().Update(context.Background(), mig.ID, api.MigrationUpdate{BandwidthBytesPerSecond: &bps})
			must(t, err)
			pass(time.Second)
			bandwidth(bps)
		}
		for range 4 {
			d.world.Step(1)
			pass(time.Second)
		}
		mig = d.get(mig.ID)
		if mig.Phase != "mirror" || mig.BytesDone != 4*hvtest.BlockSize || mig.BytesTotal < mig.BytesDone || mig.RateBytesPerSecond <= 0 {
			t.Errorf("phase %s, %d of %d bytes, %d B/s", mig.Phase, mig.BytesDone, mig.BytesTotal, mig.RateBytesPerSecond)
		}
		d.world.SetStep(2)
		d.until(mig.ID, api.MigrationCompleted)
	})
}

func TestAMirrorThatFailsIsUndoneAndSaysWhy(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.SetStep(0)
		req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: mirrorToNewPool, Composite: true}
		mig, err := d.manager().Start(context.Background(), req)
		must(t, err)
		d.until(mig.ID, api.MigrationCopying)
		pass(time.Second)
		must(t, d.world.BreakJob(testInstance, "vda"))
		mig = d.until(mig.ID, api.MigrationCancelled)
		d.gone(mig)
		if mig.Error == nil || !strings.Contains(mig.Error.Message, "QEMU ended the copy") {
			t.Errorf("the migration says %v", mig.Error)
		}
		o, err := d.manager().Request(context.Background(), req.OpID)
		must(t, err)
		if o.State != string(op.StateUndone) || o.Error == nil {
			t.Errorf("the request is %s (%v), want undone with the reason", o.State, o.Error)
		}
		if row, err := d.world.Registry.Migration(context.Background(), mig.ID); err != nil || row.Error == nil {
			t.Errorf("the registry was not told why: %+v (%v)", row, err)
		}
		d.until(d.migrateTo(mirrorToNewPool), api.MigrationCopying) // it may be tried again
	})
}

func TestAMirrorWaitsAWhileForAGuestThatWentOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"a restart": 10 * time.Second, "for good": 2 * blockjob.OffBound} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.mirroring(mirrorToNewPool)
				d.world.Step(3)
				must(t, d.world.Stop(testInstance))
				pass(off)
				must(t, d.world.Start(testInstance))
				for range 5 {
					d.world.GuestWrites()
				}
				d.world.SetStep(2)
				mig = d.until(mig.ID, api.MigrationCompleted, api.MigrationCancelled)
				if off < blockjob.OffBound {
					d.moved(mig)
					return
				}
				d.gone(mig)
				if mig.Error == nil || mig.Error.Code != api.CodeStateForbidden || !strings.Contains(mig.Error.Message, "migrate it again") {
					t.Errorf("the migration says %v", mig.Error)
				}
			})
		})
	}
}

// libvirt reports the job as gone a moment before it reports the guest as off.
func TestAGuestThatIsDestroyedIsNotTakenForAnIOError(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.mirroring(mirrorToNewPool)
		must(t, d.world.BreakJob(testInstance, "vda"))
		time.AfterFunc(look.DestroyNotice/2, func() { _ = d.world.Destroy(testInstance) })
		pass(look.DestroyNotice)
		must(t, d.world.Start(testInstance))
		d.world.SetStep(2)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

// No look has seen it off.
func TestAGuestThatIsStartedAgainAtOnceIsMirroredAnew(t *testing.T) {
	for name, before := range map[string]time.Duration{"before the job is missed": 0, "after": look.DestroyNotice / 2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.mirroring(mirrorToNewPool)
				d.world.Step(3)
				if before > 0 {
					must(t, d.world.BreakJob(testInstance, "vda"))
					pass(before)
				}
				must(t, errors.Join(d.world.Destroy(testInstance), d.world.Start(testInstance)))
				d.world.SetStep(2)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
}

// A mirror takes hours and does not delay changes of the instance's other disks and attachments.
func TestAMirrorDoesNotHoldTheInstance(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.mirroring(mirrorToNewPool)
		for _, st := range d.runner().Active() {
			for _, key := range st.Op.Keys {
				if strings.HasPrefix(key, "instance/") {
					t.Errorf("op %s holds %s", st.Op.Kind, key)
				}
			}
		}
	})
}

func TestAVerifiedMirrorIsComparedInThePause(t *testing.T) {
	verified := mirrorToNewPool
	verified.Verify = move.VerifyFull
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		var seen hv.State
		d.world.Copier.OnCompare = func() {
			dom, err := d.world.Fake.Domain(context.Background(), testInstance)
			must(t, err)
			seen = dom.State
		}
		d.moved(d.until(d.migrateTo(verified), api.MigrationCompleted))
		if seen != hv.StatePaused {
			t.Errorf("the guest was %q while both sides were compared", seen)
		}
	})
}

// The job has written the guest's writes to both sides, and src may be the side that lost them.
func TestAMirrorWhoseSidesDifferKeepsBothForTheOperator(t *testing.T) {
	verified := mirrorToNewPool
	verified.Verify = move.VerifyFull
	parked := func(t *testing.T, d *daemon) api.Migration {
		d.world.Copier.Differs = true
		mig := d.untilItStands(d.migrateTo(verified))
		expect.Code(t, mig.Error, api.CodeCopyMismatch, "either may be the wrong one")
		if mig.State != api.MigrationNeedsOperator || !d.world.Exists(mig.Dst.Path) {
			t.Fatalf("the migration is %s, and %s is there: %v", mig.State, mig.Dst.Path, d.world.Exists(mig.Dst.Path))
		}
		d.stillRunning()
		return mig
	}
	for name, then := range map[string]func(d *daemon, mig api.Migration){
		"a cancel stays": func(d *daemon, mig api.Migration) {
			d.until(d.cancels(mig.ID), api.MigrationCancelled)
			d.gone(mig)
		},
		"a complete compares them once more": func(d *daemon, mig api.Migration) {
			if again := d.untilItStands(d.completes(mig)); again.State != api.MigrationNeedsOperator || !d.world.Exists(mig.Dst.Path) {
				d.t.Fatalf("the sides still differ, and the migration is %s (%v)", again.State, again.Error)
			}
			d.stillRunning()
			d.world.Copier.Differs = false
			d.moved(d.until(d.completes(mig), api.MigrationCompleted))
		},
		"a guest that its owner suspends meanwhile stays suspended": func(d *daemon, mig api.Migration) {
			must(d.t, d.world.SuspendByUser(testInstance))
			d.until(d.cancels(mig.ID), api.MigrationCancelled)
			if dom, err := d.world.Fake.Domain(context.Background(), testInstance); err != nil || dom.State != hv.StatePaused {
				d.t.Errorf("the guest is %s (%v)", dom.State, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				then(d, parked(t, d))
				d.world.AssertNoWriteLost(t)
			})
		})
	}
}

func TestADaemonThatStopsDuringTheComparisonLeavesNoGuestPaused(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		verified := mirrorToNewPool
		verified.Verify = move.VerifyFull
		began, never := make(chan struct{}), make(chan struct{})
		d.world.Copier.OnCompare = func() { close(began) }
		d.world.Copier.CompareGate = never
		id := d.migrateTo(verified)
		<-began
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		d.manager().Monitor.Quiesce(ctx)
		if dom, err := d.world.Fake.Domain(context.Background(), testInstance); ctx.Err() != nil || err != nil || dom.State != hv.StateRunning {
			t.Fatalf("the guest is %s (%v) after the daemon came out (%v)", dom.State, err, ctx.Err())
		}
		d.world.Copier.OnCompare, d.world.Copier.CompareGate = nil, nil
		d.Restart()
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

func TestCancelOfAMirrorWinsAtEveryCallBeforeThePivot(t *testing.T) {
	everyCall(t, hv.StateRunning, func(t *testing.T, d *daemon, fault hvtest.Fault) {
		d.world.Inject(fault)
		id := d.migrateTo(mirrorToNewPool)
		mig := d.until(id, api.MigrationCancelled, api.MigrationCompleted)
		calm(d)
		if mig.State == api.MigrationCompleted {
			d.moved(mig)
			return
		}
		d.gone(mig)
		if mig.Error != nil {
			t.Errorf("the migration was cancelled and says %v", mig.Error)
		}
	}, func(d *daemon) hvtest.Fault {
		return hvtest.Fault{Do: func() {
			open, err := d.manager().List(context.Background(), false)
			if err != nil || len(open) == 0 {
				return
			}
			go func() {
				_, _, err := d.manager().Cancel(context.Background(), d.call(open[0].ID))
				if code := api.CodeOf(err); err != nil && code != api.CodePastPointOfNoReturn {
					d.t.Errorf("cancel: %v", err)
				}
			}()
			pass(time.Millisecond)
		}}
	})
}

// A synchronous job that ends during a write of the guest may kill QEMU.
func TestAMirrorIsAbortedOnlyWhileTheGuestIsPaused(t *testing.T) {
	for _, state := range migratetest.ActiveStates {
		inBubble(t, state, func(t *testing.T, d *daemon) {
			mig := d.mirroring(mirrorToNewPool)
			aborted := false
			d.world.Inject(hvtest.Fault{Call: "AbortJob", Do: func() {
				aborted = true
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if dom.State != hv.StatePaused {
					t.Errorf("the job was ended with the guest %s", dom.State)
				}
			}})
			_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
			must(t, err)
			d.until(mig.ID, api.MigrationCancelled)
			d.gone(mig)
			dom, err := d.world.Fake.Domain(context.Background(), testInstance)
			must(t, err)
			if !aborted || dom.State != state {
				t.Errorf("the job was ended: %v; the guest was %s and is %s", aborted, state, dom.State)
			}
		})
	}
}
