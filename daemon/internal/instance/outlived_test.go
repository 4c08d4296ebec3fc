// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Each op asks the registry immediately before each effect, and a refusal changes nothing.
func TestTheRegistryIsAskedBeforeAGuestIsSuspendedRestoredOrResumed(t *testing.T) {
	refuse := func(d *pauseDaemon, to string) {
		d.world.set(func() { d.world.refused = map[string]bool{to: true} })
	}
	allow := func(d *pauseDaemon) { d.world.set(func() { d.world.refused = nil }) }
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		refuse(d, api.PermitSuspend)
		wantState(t, d.suspend("suspend", pausedWeb), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
		allow(d)
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())

		refuse(d, api.PermitRestore)
		wantState(t, d.restorePaused("restore", pausedWeb, pausedDst), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.asleep(true))
		allow(d)
		wantState(t, d.restorePaused("restore.2", pausedWeb, pausedDst), op.StateDone, "")
		must(t, d.world.ready(hv.StateRunning))

		refuse(d, api.PermitResume)
		wantState(t, d.resume("resume", pausedWeb, pausedDst), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.ready(hv.StateRunning))
		// Its host loses power now, and others have been resumed.
		must(t, d.world.HostReboot())
		refuse(d, api.PermitRestore)
		wantState(t, d.resume("resume.2", pausedWeb, pausedDst), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.asleep(true))
		if !slices.Contains(d.world.asked, api.PermitSuspend) {
			t.Errorf("asked for %q", d.world.asked)
		}
	}, hv.StateRunning)
}

func TestMemoryThatIsGivenUpLeavesTheInstanceOffAndGuardedUntilItIsResumed(t *testing.T) {
	for name, rested := range map[string]func(*testing.T, *pauseDaemon){
		"in its file": func(*testing.T, *pauseDaemon) {},
		"in a process": func(t *testing.T, d *pauseDaemon) {
			t.Helper()
			wantState(t, d.restorePaused("restore", pausedWeb, pausedDst), op.StateDone, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, d.world.copied())
				rested(t, d)
				d.world.set(func() { d.world.refused = map[string]bool{api.PermitRestore: true, api.PermitResume: true} })
				discard := api.InstanceRestore{Location: d.world.location(pausedDst), DiscardMemory: true}
				wantState(t, d.restoreAs("discard", pausedWeb, discard), op.StateDone, "")
				must(t, d.world.asleep(false))
				if d.world.Start(pausedWeb) == nil {
					t.Error("it was started beside guests that are not restored yet")
				}
				wantState(t, d.resume("resume", pausedWeb, pausedDst), op.StateDone, "")
				must(t, d.world.as(pausedWeb, hv.StateStopped, pausedDst))
			}, hv.StateRunning)
		})
	}
}

func TestAGuestThatWasSuspendedAndRunsAgainIsNotSaved(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.suspend("suspend", pausedWeb), op.StateDone, "")
		must(t, d.world.Resume(t.Context(), pausedWeb)) // by hand
		_, err := d.now().BeginSave(t.Context(), "save", pausedWeb, api.InstanceSave{MigrationID: pausedMig, VolumeID: pausedVol})
		if e := api.AsError(err); e == nil || e.Code != api.CodeStateForbidden || e.Details["ran_on"] != true {
			t.Errorf("error = %+v", err)
		}
	}, hv.StateRunning)
}

// Web is being saved when an operator resumes db.
func TestAGuestIsNotRestoredFromItsSaveBesideOneThatSomebodyHasLetRunOn(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.suspend("suspend", pausedWeb), op.StateDone, "")
		wantState(t, d.suspend("suspend.db", pausedDB), op.StateDone, "")
		d.world.Inject(hvtest.Fault{Call: "SaveMemory", After: true, Do: func() { must(t, d.world.Resume(t.Context(), pausedDB)) }})
		st := d.saveOnly("save", pausedWeb)
		wantState(t, st, op.StateUndone, api.CodeVolumeInUse)
		if st.Failure.Details["ran_on"] != true || st.Failure.Details["instance_id"] != pausedDB {
			t.Errorf("the refusal does not say who has run on: %+v", st.Failure)
		}
		must(t, d.world.asleep(true))
	}, hv.StateRunning, hv.StateRunning)
}

func TestAGuestThatWasNotSuspendedIsNotSaved(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.saveOnly("save", pausedWeb), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

// The move is refused for the same reasons as one with running guests: before any change, before
// the suspend, and again before the save.
func TestAVolumeThatCouldNotBeMovedAnywayIsNeitherSuspendedNorSaved(t *testing.T) {
	foreign := api.Errorf(api.CodeVolumeInUse, "is disk vdb of instance foreign")
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		check := func() error {
			return d.now().CheckSave(context.Background(), pausedWeb, api.InstanceSuspend{MigrationID: pausedMig, VolumeID: pausedVol})
		}
		must(t, check())
		d.world.set(func() { d.world.unmovable = foreign })
		if err := check(); !errors.Is(err, foreign) {
			t.Errorf("check: %v", err)
		}
		wantState(t, d.suspend("suspend", pausedWeb), op.StateUndone, api.CodeVolumeInUse)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
		d.world.set(func() { d.world.unmovable = nil })
		wantState(t, d.suspend("suspend.2", pausedWeb), op.StateDone, "")
		d.world.set(func() { d.world.unmovable = foreign })
		wantState(t, d.saveOnly("save", pausedWeb), op.StateUndone, api.CodeVolumeInUse)
		must(t, d.world.suspended(hv.StateRunning))
	}, hv.StateRunning)
}

func TestASuspendThatIsAskedForTwiceIsTheFirst(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.suspend("suspend", pausedWeb), op.StateDone, "")
				wantState(t, d.suspend("suspend.2", pausedWeb), op.StateDone, "")
				d.world.Inject(hvtest.Fault{Call: "Resume", Err: errors.New("must not be called"), Nth: 1})
				must(t, d.world.suspended(state))
				d.world.ClearFaults()
				wantState(t, d.resume("resume", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, d.world.as(pausedWeb, state, pausedSrc))
				wantState(t, d.suspend("late", pausedWeb), op.StateUndone, api.CodeStateForbidden)
			}, state)
		})
	}
}
