// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

var pauseStates = []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped}

// inPauseBubble runs a test in fake time on a world with instances in these states.
func inPauseBubble(t *testing.T, f func(t *testing.T, d *pauseDaemon), states ...hv.State) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startPauseDaemon(t, newPauseWorld(t, states...))) })
}

func wantState(t *testing.T, st op.Status, want op.State, code api.Code) {
	t.Helper()
	if st.State != want || (code != "" && (st.Failure == nil || st.Failure.Code != string(code))) {
		t.Fatalf("the op is %s (%+v), want %s %s", st.State, st.Failure, want, code)
	}
}

func TestASavedInstanceIsWokenAsItWas(t *testing.T) {
	for _, state := range pauseStates {
		for _, at := range []string{pausedSrc, pausedDst} {
			t.Run(fmt.Sprintf("%s, at %s", state, at), func(t *testing.T) {
				inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
					wantState(t, d.save("save"), op.StateDone, "")
					must(t, d.world.asleep(state.Active()))
					if at == pausedDst {
						must(t, d.world.copied())
					}
					wantState(t, d.restore("restore", pausedWeb, at), op.StateDone, "")
					must(t, d.world.as(pausedWeb, state, at))
					// A repeated restore changes nothing.
					wantState(t, d.restore("again", pausedWeb, at), op.StateDone, "")
					must(t, d.world.as(pausedWeb, state, at))
				}, state)
			})
		}
	}
}

func TestAnInstanceThatWasNotSavedIsLeftAsItIs(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, d.world.as(pausedWeb, state, pausedSrc))
			}, state)
		})
	}
}

func TestASaveAfterARestoreIsRefused(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		wantState(t, d.save("late"), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestOnlyTheMigrationThatHasTheLockSavesAndRestores(t *testing.T) {
	for holder, code := range map[string]api.Code{"": api.CodeStateForbidden, "another": api.CodeInstanceLocked} {
		t.Run("locked by "+holder, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				d.world.set(func() { d.world.lockedBy = holder })
				wantState(t, d.save("save"), op.StateUndone, code)
				wantState(t, d.restore("restore", pausedWeb, pausedSrc), op.StateUndone, code)
				must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
			}, hv.StateRunning)
		})
	}
}

func TestTooLittleSpaceForTheMemoryIsSaidBeforeAnythingIsTouched(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.images.Free.Store(1<<30 + 1<<30/10 - 1)
		wantState(t, d.save("save"), op.StateUndone, api.CodeNoSpace)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
		for _, call := range d.world.Calls() {
			if call != "Domain" {
				t.Errorf("%s was called", call)
			}
		}
	}, hv.StateRunning)
}

// A host's guests are saved together, so the free space must be enough for all.
func TestTooLittleSpaceForTheMemoryOfAllGuestsIsSaidBeforeAnythingIsTouched(t *testing.T) {
	const each = 1<<30 + 1<<30/10
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.images.Free.Store(2*each - 1)
		st := d.suspend("suspend", pausedWeb)
		wantState(t, st, op.StateUndone, api.CodeNoSpace)
		if !strings.Contains(st.Failure.Message, "all guests") {
			t.Errorf("it says %q", st.Failure.Message)
		}
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
		d.world.images.Free.Store(2 * each)
		wantState(t, d.suspend("again", pausedWeb), op.StateDone, "")
		wantState(t, d.suspend("again.db", pausedDB), op.StateDone, "")
		// The other guest's save image is not free space any more, and nothing is counted twice.
		d.world.images.Free.Store(each)
		wantState(t, d.saveOnly("save", pausedWeb), op.StateDone, "")
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		wantState(t, d.restore("back.db", pausedDB, pausedSrc), op.StateDone, "")
	}, hv.StateRunning, hv.StateRunning)
}

func TestAManagedSaveAndAForeignDiskAreRefused(t *testing.T) {
	t.Run("managed save", func(t *testing.T) {
		inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
			must(t, d.world.Save(pausedWeb))
			wantState(t, d.save("save"), op.StateUndone, api.CodeStateForbidden)
		}, hv.StateRunning)
	})
	t.Run("another image", func(t *testing.T) {
		inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
			must(t, d.world.SetConfigChain(t.Context(), pausedWeb, "vdb", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: pausedDst}}))
			wantState(t, d.save("save"), op.StateUndone, api.CodeChainChanged)
		}, hv.StateStopped)
	})
}

func TestAVolumeThatSomebodyElseHasOpenBringsTheGuestBack(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.mount()
		wantState(t, d.save("save"), op.StateUndone, api.CodeVolumeInUse)
		// It stays paused like the others, until all are resumed.
		must(t, d.world.suspended(hv.StateRunning))
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestTheOtherGuestsOfAVolumeAreSavedInTheirTurn(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.suspend("suspend-db", pausedDB), op.StateDone, "")
		wantState(t, d.save("save-web"), op.StateDone, "")
		wantState(t, d.saveOnly("save-db", pausedDB), op.StateDone, "")
		must(t, d.world.copied())
		wantState(t, d.restore("restore-db", pausedDB, pausedDst), op.StateDone, "")
		wantState(t, d.restore("restore-web", pausedWeb, pausedDst), op.StateDone, "")
		must(t, d.world.as(pausedDB, hv.StateRunning, pausedDst))
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
	}, hv.StateRunning, hv.StateRunning)
}

func TestASavedGuestThatRunsAgainIsFoundOutByTheNextSave(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.suspend("suspend-db", pausedDB), op.StateDone, "")
		wantState(t, d.save("save-web"), op.StateDone, "")
		d.world.OnStart, d.world.OnStartToken = nil, nil // the hook was taken away
		must(t, d.world.Start(pausedWeb))
		wantState(t, d.saveOnly("save-db", pausedDB), op.StateUndone, api.CodeVolumeInUse)
	}, hv.StateRunning, hv.StateRunning)
}

// The answer to a save may be lost between the host's journal and the registry; then the registry
// asks under another id.
func TestASaveUnderAnotherIDChangesNothingOfTheFirst(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				wantState(t, d.save("save.2"), op.StateDone, "")
				d.world.mount()
				wantState(t, d.save("save.3"), op.StateUndone, api.CodeVolumeInUse)
				must(t, d.world.asleep(state.Active()))
				wantState(t, d.restore("restore", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, d.world.as(pausedWeb, state, pausedSrc))
			}, state)
		})
	}
}

func TestAnInstanceThatASaveCannotBringBackIsTheRestoresToWake(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.mount()
		for nth := range 2 {
			d.world.Inject(hvtest.Fault{Call: "RestoreMemory", Nth: nth + 1, Err: errors.New("broken")})
		}
		wantState(t, d.save("save"), op.StateUndone, api.CodeVolumeInUse)
		must(t, d.world.asleep(true))
		// The request is repeated because its answer was lost. It is not refused: that would mean
		// that the instance was never touched.
		_, err := d.now().BeginSave(t.Context(), "save", pausedWeb, api.InstanceSave{MigrationID: pausedMig, VolumeID: pausedVol})
		must(t, err)
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateUndone, api.CodeNeedsOperator)
		must(t, d.world.asleep(true))
		wantState(t, d.restore("back.2", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

// A move that ended without an instance, because its host was fenced and its attachment deleted,
// never requests its restore.
func TestTheGuardOfAMoveThatHasLetTheInstanceGoKeepsItOffOnlyWithItsMemory(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		start := func(id string) op.Status {
			return d.ask(id, func(g *Manager) error {
				_, err := g.BeginStart(context.Background(), id, pausedWeb)
				return err
			})
		}
		wantState(t, d.save("save"), op.StateDone, "")
		wantState(t, start("start.1"), op.StateUndone, api.CodeInstanceLocked)
		d.world.set(func() { d.world.lockedBy = "" })
		st := start("start.2")
		wantState(t, st, op.StateUndone, api.CodeStateForbidden)
		if !strings.Contains(st.Failure.Message, d.world.saveDir) || !strings.Contains(st.Failure.Message, pausedMig) {
			t.Errorf("it says %q", st.Failure.Message)
		}
		must(t, d.world.asleep(true))
		for _, name := range d.world.memories() {
			must(t, os.Remove(d.world.saveDir+"/"+name))
		}
		wantState(t, start("start.3"), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestAMemoryThatTheJournalDoesNotKnowIsKept(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		d.world.journal = optest.NewJournal() // the state directory was lost
		d.Restart()
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateUndone, api.CodeNeedsOperator)
		must(t, d.world.asleep(true))
	}, hv.StateRunning)
}

func TestASavedInstanceIsStartedByNobody(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		if err := d.world.Start(pausedWeb); err == nil {
			t.Error("virsh start was let go")
		}
		d.Restart()
		must(t, d.world.HostReboot())
		must(t, d.world.asleep(true))
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestAnInstanceThatCannotBeWokenStaysSavedAndIsTriedAgain(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())
		d.world.Inject(hvtest.Fault{Call: "RestoreMemory", Err: errors.New("broken")})
		st := d.restore("restore", pausedWeb, pausedDst)
		wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
		for _, says := range []string{d.world.saveDir, "remove the file", pausedDst, pausedMig} {
			if !strings.Contains(st.Failure.Message, says) {
				t.Errorf("%q does not say %s", st.Failure.Message, says)
			}
		}
		must(t, d.world.asleep(true))
		wantState(t, d.restore("restore.2", pausedWeb, pausedDst), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
	}, hv.StateRunning)
}

func TestAnInstanceWhoseMemoryIsGoneIsStoppedAndSaysSo(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		for _, name := range d.world.memories() {
			must(t, os.Remove(d.world.saveDir+"/"+name))
		}
		st := d.restorePaused("restore", pausedWeb, pausedSrc)
		wantState(t, st, op.StateDone, "")
		var out struct{ Remark string }
		if err := json.Unmarshal(st.Outputs["wake"], &out); err != nil || !strings.Contains(out.Remark, "stopped") {
			t.Errorf("it says %q (%v)", out.Remark, err)
		}
		wantState(t, d.resume("resume", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateStopped, pausedSrc))
	}, hv.StateRunning)
}

// A host with save_dir in its own memory loses the saved memory with its power: then the guest is
// off at its volume's location, and no older memory is restored.
func TestAGuestWhoseMemoryWentWithItsHostIsOffWhereItsVolumeIs(t *testing.T) {
	for _, at := range []string{pausedSrc, pausedDst} {
		t.Run(at, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				if at == pausedDst {
					must(t, d.world.copied())
				}
				must(t, errors.Join(os.RemoveAll(d.world.saveDir), os.Mkdir(d.world.saveDir, 0o700)))
				d.reboot()
				if d.world.Start(pausedWeb) == nil {
					t.Error("virsh start was let go")
				}
				wantState(t, d.restore("restore", pausedWeb, at), op.StateDone, "")
				must(t, d.world.as(pausedWeb, hv.StateStopped, at))
			}, hv.StateRunning)
		})
	}
}

// Without the hook, another program's start during the restore boots the domain from the right
// volume. Its saved memory is then useless, but kept.
func TestAGuestThatSomebodyStartsAsItIsWokenIsLeftAlone(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())
		d.world.OnStart, d.world.OnStartToken = nil, nil
		d.world.Inject(hvtest.Fault{Call: "RestoreMemory", Do: func() { must(t, d.world.Start(pausedWeb)) }})
		st := d.restore("restore", pausedWeb, pausedDst)
		wantState(t, st, op.StateDone, "")
		left := d.world.memories()
		if len(left) != 1 || !strings.HasSuffix(left[0], ".unused") {
			t.Fatalf("its memory is in %v", left)
		}
		must(t, os.Remove(d.world.saveDir+"/"+left[0]))
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
	}, hv.StateRunning)
}

// The memory of a guest that has run since no longer matches its disks.
func TestAGuestIsNotRestoredTwiceFromTheSameMemoryIfItRanInBetween(t *testing.T) {
	for _, call := range []string{"RestoreMemory", "Resume"} {
		t.Run("killed after "+call, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				w, wrote := d.world, false
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, w.copied())
				w.Inject(hvtest.Fault{Call: call, After: true, Err: hv.ErrUnavailable, Do: func() {
					wrote = w.GuestWrite(pausedWeb, "vdb", 7, 7) == nil
					must(t, w.Destroy(pausedWeb))
				}})
				wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
				state := hv.StateRunning
				if wrote {
					state = hv.StateStopped
				}
				must(t, w.as(pausedWeb, state, pausedDst))
			}, hv.StateRunning)
		})
	}
}

func TestAnInstanceIsGuardedWhileItsRestoreWaits(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		d.world.Inject(hvtest.Fault{Call: "RestoreMemory", Do: d.world.Disconnect})
		time.AfterFunc(time.Minute, func() {
			if d.world.Start(pausedWeb) == nil {
				t.Error("virsh start was let go")
			}
			d.world.Reconnect()
		})
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestMemorySaysWhatASaveTakes(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		is, err := d.now().Memory(context.Background(), pausedWeb)
		must(t, err)
		if is.MemoryBytes != 1<<30+1<<30/10 || is.FreeBytes != 1<<40 || is.State != api.InstanceRunning || is.Host != "alpha" || is.SavedInMemory {
			t.Errorf("it takes %+v", is)
		}
		d.world.images.Memory.Store(true)
		if is, err := d.now().Memory(context.Background(), pausedWeb); err != nil || !is.SavedInMemory {
			t.Errorf("of a save directory on a tmpfs it says %+v (%v)", is, err)
		}
	}, hv.StateRunning)
}

// trouble is a fault at a call of the hypervisor.
type trouble struct {
	name  string
	fault func(d *pauseDaemon) hvtest.Fault
	// ends reports that the guest may end stopped, because it powered off or was lost with its
	// host.
	ends bool
}

var errRefused = errors.New("libvirt refuses")

var pauseTroubles = []trouble{
	{"it is refused", func(*pauseDaemon) hvtest.Fault { return hvtest.Fault{Err: errRefused} }, false},
	{"its answer is lost", func(*pauseDaemon) hvtest.Fault { return hvtest.Fault{After: true, Err: hv.ErrUnavailable} }, false},
	{"it is lost", func(*pauseDaemon) hvtest.Fault { return hvtest.Fault{Err: hv.ErrUnavailable} }, false},
	{"libvirt goes away", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() {
			d.world.Disconnect()
			time.AfterFunc(time.Minute, d.world.Reconnect)
		}}
	}, false},
	{"the registry goes away", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{Do: func() {
			d.world.set(func() { d.world.down = true })
			time.AfterFunc(time.Minute, func() { d.world.set(func() { d.world.down = false }) })
		}}
	}, false},
	{"the daemon dies", func(d *pauseDaemon) hvtest.Fault { return hvtest.Fault{After: true, Do: func() { go d.Restart() }} }, false},
	{"the guest is destroyed", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{Do: func() { _ = d.world.Destroy(pausedWeb) }}
	}, true},
	{"the host reboots", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() { _ = d.world.HostReboot() }}
	}, true},
	{"the host reboots, with the daemon", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{After: true, Err: hv.ErrUnavailable, Do: func() {
			_ = d.world.HostReboot()
			go d.reboot()
		}}
	}, true},
	{"somebody tries to start it", func(d *pauseDaemon) hvtest.Fault {
		return hvtest.Fault{After: true, Do: func() { _ = d.world.Start(pausedWeb) }}
	}, false},
}

// A move with one fault at one call, for every call, ends with the guest in its earlier state, at
// dst if it was saved, otherwise at src, without loss or leftovers.
func TestWhateverGoesWrongAtAnyCallTheGuestIsAsItWas(t *testing.T) {
	for _, tr := range pauseTroubles {
		for _, state := range pauseStates {
			t.Run(tr.name+", "+string(state), func(t *testing.T) {
				step := 1
				if testing.Short() { // for the race detector
					step = 9
				}
				for n := 1; ; n += step {
					over := false
					t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
						inPauseBubble(t, func(t *testing.T, d *pauseDaemon) { over = !d.moveWithTrouble(t, tr, state, n) }, state)
					})
					if over || t.Failed() {
						return
					}
				}
			})
		}
	}
}

// moveWithTrouble plays the registry in one move. It reports whether the fault happened.
func (d *pauseDaemon) moveWithTrouble(t *testing.T, tr trouble, state hv.State, nth int) bool {
	w, came := d.world, false
	fault := tr.fault(d)
	do := fault.Do
	fault.Nth, fault.Do = nth, func() {
		came = true
		if do != nil {
			do()
		}
	}
	w.Inject(fault)
	verb, at := "restore", pausedDst
	switch st := d.save(pausedMig + ".save"); st.State {
	case op.StateDone:
		must(t, w.copied())
	case op.StateUndone:
		pass(5 * time.Minute) // the fault is over
		verb, at = "back", pausedSrc
	default:
		t.Fatalf("the save is %s: %+v", st.State, st.Failure)
	}
	for try := 1; ; try++ {
		st := d.restore(fmt.Sprintf("%s.%s.%d", pausedMig, verb, try), pausedWeb, at)
		if st.State == op.StateDone {
			break
		}
		if try > 3 || st.State != op.StateUndone {
			t.Fatalf("the restore is %s: %+v", st.State, st.Failure)
		}
	}
	w.ClearFaults()
	pass(5 * time.Minute)
	synctest.Wait()
	if err := w.as(pausedWeb, w.expected(tr, state), at); err != nil {
		t.Error(err)
	}
	return came
}

// expected returns the required final state of an instance: its earlier state, unless the fault
// powered it off.
func (w *pauseWorld) expected(tr trouble, was hv.State) hv.State {
	dom, err := w.Fake.Domain(context.Background(), pausedWeb)
	if err == nil && (tr.ends || was == hv.StateStopped) {
		return dom.State
	}
	return was
}

// pauseSubject is a world for the run of a save or a restore.
type pauseSubject struct {
	*pauseWorld
	kind         string
	in           memory.PauseInput
	was          hv.State
	done, undone func(*pauseSubject) error
}

// Plans implements optest.World. The save's records are in the world's journal, whatever journal
// the op under test has.
func (s *pauseSubject) Plans() []op.Plan {
	return s.newManager(optest.NewRunner(s.journal)).Plans()
}

// Op implements optest.World.
func (s *pauseSubject) Op() op.Op {
	data, err := json.Marshal(s.in)
	if err != nil {
		panic(err)
	}
	return op.Op{ID: "op", Kind: s.kind, Group: pausedWeb, Keys: s.in.Keys(), Input: data, CreatedAt: time.Unix(1, 0)}
}

// Check implements optest.World.
func (s *pauseSubject) Check(state op.State) error {
	if state == op.StateDone {
		return s.done(s)
	}
	return s.undone(s)
}

func newPauseSubject(t *testing.T, kind string, state hv.State) *pauseSubject {
	t.Helper()
	w := newPauseWorld(t, state)
	in := memory.PauseInput{
		Subject:     subject.Subject{InstanceID: pausedWeb, InstanceName: "web", Host: "host-alpha", HostName: "alpha", Epoch: 1, Whole: true},
		MigrationID: pausedMig, VolumeID: pausedVol, VolumeName: "vol", Device: "vdb", Location: w.location(pausedSrc),
		Memory: w.newManager(optest.NewRunner(w.journal)).env.Memory.SaveImagePath(pausedWeb, pausedMig),
	}
	return &pauseSubject{pauseWorld: w, kind: kind, in: in, was: state}
}

func TestMatrixOfSave(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				s := newPauseSubject(t, subject.KindSave, state)
				s.in.Suspended = true
				d := startPauseDaemon(t, s.pauseWorld)
				wantState(t, d.suspend("suspend", pausedWeb), op.StateDone, "")
				s.done = func(s *pauseSubject) error { return s.asleep(s.was.Active()) }
				s.undone = func(s *pauseSubject) error { return s.suspended(s.was) }
				return s
			}})
		})
	}
}

func TestMatrixOfSuspend(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				s := newPauseSubject(t, subject.KindSuspend, state)
				s.done = func(s *pauseSubject) error { return s.suspended(s.was) }
				s.undone = func(s *pauseSubject) error { return s.as(pausedWeb, s.was, pausedSrc) }
				return s
			}})
		})
	}
}

// The check of each kind of restore: the resulting state of its guest.
var restores = map[string]func(*pauseSubject) error{
	subject.KindRestorePaused: func(s *pauseSubject) error { return s.ready(s.was) },
	subject.KindDiscard:       func(s *pauseSubject) error { return s.asleep(false) },
}

func TestMatrixOfRestore(t *testing.T) {
	for kind, done := range restores {
		for _, state := range pauseStates {
			t.Run(kind+" "+string(state), func(t *testing.T) {
				optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
					s := newPauseSubject(t, kind, state)
					d := startPauseDaemon(t, s.pauseWorld)
					wantState(t, d.save("save"), op.StateDone, "")
					must(t, s.copied())
					s.in.Location = s.location(pausedDst)
					s.done = done
					s.undone = func(s *pauseSubject) error { return s.notGoneOn(s.was.Active()) }
					return s
				}})
			})
		}
	}
}

func TestMatrixOfResume(t *testing.T) {
	for _, state := range pauseStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				s := newPauseSubject(t, subject.KindResume, state)
				d := startPauseDaemon(t, s.pauseWorld)
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, s.copied())
				wantState(t, d.restorePaused("restore", pausedWeb, pausedDst), op.StateDone, "")
				s.in.Location = s.location(pausedDst)
				s.done = func(s *pauseSubject) error { return s.as(pausedWeb, s.was, pausedDst) }
				s.undone = func(s *pauseSubject) error { return s.notGoneOn(s.was.Active()) }
				return s
			}})
		})
	}
}
