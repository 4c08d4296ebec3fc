// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// wakings are the moments of a guest's restore, with the call at each.
var wakings = map[string]hvtest.Fault{
	"as its RAM is about to be restored": {Call: "RestoreMemory"},
	"with its RAM restored":              {Call: "RestoreMemory", After: true},
	"as it is about to go on":            {Call: "Resume"},
}

func TestAGuestThatIsWokenIsStartedByNobodyElse(t *testing.T) {
	for _, moment := range []string{"as its RAM is about to be restored", "with its RAM restored"} {
		t.Run(moment, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				fault := wakings[moment]
				fault.Do = func() {
					if moment == "with its RAM restored" { // it is lost, and has not run
						must(t, d.world.Destroy(pausedWeb))
					}
					if err := d.world.Start(pausedWeb); !errors.Is(err, hv.ErrGuarded) {
						t.Errorf("virsh start = %v", err)
					}
				}
				d.world.Inject(fault)
				for try := range 3 { // libvirt lost it, and reports that like any failure
					if st := d.restore(fmt.Sprint("restore.", try), pausedWeb, pausedSrc); st.State == op.StateDone {
						break
					}
				}
				must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
			}, hv.StateRunning)
		})
	}
}

// After a power cut during the restore of a guest, the host still has the guest's RAM, unless the
// guest has been resumed.
func TestAHostThatRebootsWhileItWakesAGuestWakesIt(t *testing.T) {
	for moment, fault := range wakings {
		t.Run(moment, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, d.world.copied())
				want := hv.StateRunning
				if fault.Call == "Resume" {
					want = hv.StateStopped // only the process had its RAM
				}
				fault.Err = hv.ErrUnavailable
				fault.Do = func() {
					must(t, d.world.HostReboot())
					if err := d.world.Start(pausedWeb); fault.Call != "Resume" && !errors.Is(err, hv.ErrGuarded) {
						t.Errorf("autostart = %v", err)
					} else if err == nil {
						must(t, d.world.Destroy(pausedWeb))
					}
					go d.reboot()
				}
				d.world.Inject(fault)
				wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
				must(t, d.world.as(pausedWeb, want, pausedDst))
			}, hv.StateRunning)
		})
	}
}

// RAM on disk is not lost by a reboot at any call. The op is submitted directly, so that nothing
// else makes calls.
func TestAHostThatRebootsAtAnyCallWakesAGuestWhoseRAMIsOnDisk(t *testing.T) {
	for n, over := 1, false; !over && !t.Failed(); n++ {
		t.Run(fmt.Sprint("call ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPauseSubject(t, subject.KindRestorePaused, hv.StateRunning)
				d := startPauseDaemon(t, s.pauseWorld)
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, s.copied())
				s.in.Location = s.location(pausedDst)
				over = true
				want := hv.StateRunning
				s.Inject(hvtest.Fault{Nth: n, Do: func() {
					over = false
					// A request is answered while the op may be removing the save image: a reboot
					// would interrupt that too.
					synctest.Wait()
					if len(s.memories()) == 0 {
						want = hv.StateStopped
					}
					must(t, s.HostReboot())
				}})
				restored := d.ask(s.Op().ID, func(g *Manager) error { return g.admission.Runner.Submit(t.Context(), s.Op()) })
				wantState(t, restored, op.StateDone, "")
				wantState(t, d.resume("resume", pausedWeb, pausedDst), op.StateDone, "")
				s.ClearFaults()
				must(t, s.as(pausedWeb, want, pausedDst))
			})
		})
	}
}

func TestADaemonThatDiesWhileItWakesAGuestLeavesNoPass(t *testing.T) {
	for moment, fault := range wakings {
		t.Run(moment, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				wantState(t, d.save("save"), op.StateDone, "")
				fault.Err, fault.Do = hv.ErrUnavailable, func() { go d.Restart() }
				d.world.Inject(fault)
				wantState(t, d.restore("restore", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
			}, hv.StateRunning)
		})
	}
}

func TestTheGuardOfAnotherKeepsAGuestSaved(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.guards.Set(pausedWeb, "fence", "its host was fenced"))
		wantState(t, d.restore("restore", pausedWeb, pausedSrc), op.StateUndone, api.CodeNeedsOperator)
		must(t, d.world.inState(hv.StateStopped))
		must(t, d.world.guards.Clear(pausedWeb, "fence"))
		must(t, d.world.asleep(true))
		wantState(t, d.restore("restore.2", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

func TestAHookThatKnowsNoPassesIsNamed(t *testing.T) {
	old := errors.New("the hook is old")
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		d.world.guards.HookError = old
		st := d.restore("restore", pausedWeb, pausedSrc)
		wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
		if !strings.Contains(st.Failure.Message, old.Error()) {
			t.Errorf("it says %q", st.Failure.Message)
		}
		must(t, d.world.asleep(true))
		d.world.guards.HookError = nil
		wantState(t, d.restore("restore.2", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.guards.HookError = old
		wantState(t, d.save("save"), op.StateUndone, api.CodeStateForbidden)
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

// plugSecond gives web a second disk, which does not move.
func (w *pauseWorld) plugSecond(t *testing.T, where ...hv.Where) {
	t.Helper()
	for _, path := range []string{"/second.raw", "/third.raw"} {
		must(t, w.CreateImage(path, hvtest.Raw, pausedSize))
	}
	for _, to := range where {
		must(t, w.AttachDisk(t.Context(), pausedWeb, to, hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: rawImage("/second.raw")}))
	}
}

func rawImage(path string) hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}
}

// An operator who edits a saved guest's definition may have given its old location to another
// guest.
func TestAGuestIsNotWokenOnAnotherDiskThanItsDefinitionNames(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T, w *pauseWorld){
		"moved": func(t *testing.T, w *pauseWorld) {
			t.Helper()
			must(t, w.SetConfigChain(t.Context(), pausedWeb, "vdc", []hv.Image{rawImage("/third.raw")}))
		},
		"taken out": func(t *testing.T, w *pauseWorld) {
			t.Helper()
			must(t, w.DetachDisk(t.Context(), pausedWeb, hv.Config, "vdc"))
		},
		"added": func(t *testing.T, w *pauseWorld) {
			t.Helper()
			must(t, w.AttachDisk(t.Context(), pausedWeb, hv.Config, hv.DiskSpec{Target: "vdd", Bus: "virtio", Image: rawImage("/third.raw")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				d.world.plugSecond(t, hv.Config, hv.Live)
				before, err := d.world.Fake.Domain(t.Context(), pausedWeb)
				must(t, err)
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, d.world.copied())
				edit(t, d.world)
				st := d.restore("restore", pausedWeb, pausedDst)
				wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
				for _, says := range []string{map[string]string{"moved": "/third.raw", "taken out": "/second.raw", "added": "/third.raw"}[name], "was changed", "remove the file"} {
					if !strings.Contains(st.Failure.Message, says) {
						t.Errorf("%q does not say %s", st.Failure.Message, says)
					}
				}
				must(t, d.world.asleep(true))
				if name == "added" {
					must(t, d.world.DetachDisk(t.Context(), pausedWeb, hv.Config, "vdd"))
				} else {
					must(t, d.world.DetachDisk(t.Context(), pausedWeb, hv.Config, "vdc"))
					must(t, d.world.AttachDisk(t.Context(), pausedWeb, hv.Config, hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: before.ConfigDisk("vdc").Top()}))
				}
				wantState(t, d.restore("restore.2", pausedWeb, pausedDst), op.StateDone, "")
				must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
			}, hv.StateRunning)
		})
	}
}

func TestAGuestIsNotWokenWhileAnotherOfItsVolumesHasAnotherDeviceAtItsPath(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.plugSecond(t, hv.Config, hv.Live)
		d.world.second = &api.Attachment{
			VolumeID: "second", VolumeName: "second", InstanceID: pausedWeb, DiskAttachment: api.DiskAttachment{Device: "vdc"},
			Location: api.Location{Path: "/second.raw", Format: api.FormatRaw, SizeBytes: pausedSize, Identity: "naa.6001405aa"},
		}
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())
		st := d.restore("restore", pausedWeb, pausedDst)
		wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
		if says := st.Failure.Message; !strings.Contains(says, "cannot wake instance web: volume second") || !strings.Contains(says, "naa.6001405aa") {
			t.Errorf("it says %q", says)
		}
		must(t, d.world.asleep(true))
		d.world.second.Location.Identity = ""
		wantState(t, d.restore("restore.2", pausedWeb, pausedDst), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
	}, hv.StateRunning)
}

func TestAGuestThatRunsWithOtherDisksThanItsDefinitionHasIsNotSaved(t *testing.T) {
	for _, where := range []hv.Where{hv.Live, hv.Config} {
		inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
			d.world.plugSecond(t, where)
			st := d.save("save")
			wantState(t, st, op.StateUndone, api.CodeStateForbidden)
			if !strings.Contains(st.Failure.Message, "vdc") || !strings.Contains(st.Failure.Message, "/second.raw") {
				t.Errorf("with the disk in %s it says %q", where, st.Failure.Message)
			}
			must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
		}, hv.StateRunning)
	}
}

// partSuffix follows the name of a save image in the name of an incomplete one.
const partSuffix = ".part."

// part returns the file that a save of this boot has begun.
func (w *pauseWorld) part() string {
	return fmt.Sprintf("%s/%s.%s.ram%sboot-%d", w.saveDir, pausedWeb, pausedMig, partSuffix, w.boots)
}

// writePart writes a piece of a guest's RAM, like libvirt.
func (w *pauseWorld) writePart(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(w.part(), []byte(`{"Domain": "`), 0o600))
}

// An interrupted save's file is useless, unless libvirt has completed it and the host was not
// rebooted since.
func TestASaveThatWasCutOffIsEndedOrBegunAnew(t *testing.T) {
	restart := func(d *pauseDaemon) { go d.Restart() }
	reboot := func(t *testing.T, d *pauseDaemon) {
		t.Helper()
		must(t, d.world.HostReboot())
		go d.reboot()
	}
	for name, c := range map[string]struct {
		after bool
		cut   func(t *testing.T, d *pauseDaemon)
		kept  bool
	}{
		"the daemon dies, and libvirt ends it": {true, func(_ *testing.T, d *pauseDaemon) { restart(d) }, true},
		"the daemon dies, and libvirtd with it": {false, func(t *testing.T, d *pauseDaemon) {
			t.Helper()
			d.world.writePart(t)
			restart(d)
		}, true},
		"the guest goes off in it": {false, func(t *testing.T, d *pauseDaemon) {
			t.Helper()
			d.world.writePart(t)
			must(t, d.world.Destroy(pausedWeb))
			restart(d)
		}, false},
		"the host loses its power in it": {false, func(t *testing.T, d *pauseDaemon) {
			t.Helper()
			d.world.writePart(t)
			reboot(t, d)
		}, false},
		"the host loses its power before it is durable": {true, reboot, false},
	} {
		t.Run(name, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				d.world.Inject(hvtest.Fault{Call: "SaveMemory", After: c.after, Err: hv.ErrUnavailable, Do: func() { c.cut(t, d) }})
				wantState(t, d.save("save"), op.StateDone, "")
				must(t, d.world.asleep(c.kept))
				must(t, d.world.copied())
				wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
				want := hv.StateRunning
				if !c.kept {
					want = hv.StateStopped
				}
				must(t, d.world.as(pausedWeb, want, pausedDst))
			}, hv.StateRunning)
		})
	}
}

// losesMemory makes the flush of the saved memory fail once, after happens.
func (d *pauseDaemon) losesMemory(happens func(path string)) {
	memory := strings.TrimSuffix(d.world.part(), partSuffix+"boot-0")
	d.world.images.FlushFails = func(path string) error {
		if !strings.HasPrefix(path, memory) {
			return nil
		}
		happens(path)
		return syscall.EIO
	}
}

// wakesStopped checks that the guest comes back without its memory.
func (d *pauseDaemon) wakesStopped() {
	d.t.Helper()
	wantState(d.t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
	must(d.t, d.world.as(pausedWeb, hv.StateStopped, pausedSrc))
	if left := d.world.memories(); len(left) > 0 {
		d.t.Errorf("%v is left", left)
	}
}

// Linux reports a lost write once: a guest is not restored from memory with a missing part.
func TestAGuestIsNotWokenFromMemoryThatCouldNotBeStored(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.losesMemory(func(string) {})
		wantState(t, d.save("save"), op.StateUndone, api.CodeIOError)
		d.wakesStopped()
	}, hv.StateRunning)
}

// The filesystem may refuse to rename the file, for example if the error has made it read-only.
func TestAGuestIsNotWokenFromMemoryThatCouldNotBeStoredNorRenamed(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		unproven := strings.TrimSuffix(d.world.part(), "boot-0") + "not-stored"
		d.losesMemory(func(path string) {
			if path != unproven {
				must(t, os.Mkdir(unproven, 0o700)) // no file can replace a directory
			}
		})
		wantState(t, d.save("save"), op.StateUndone, api.CodeIOError)
		d.wakesStopped()
	}, hv.StateRunning)
}

// A part that cannot be renamed was not flushed, so nothing of it is lost.
func TestMemoryThatCannotBeRenamedIsSavedByTheNextTry(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		unproven := strings.TrimSuffix(d.world.part(), "boot-0") + "not-stored"
		d.world.Inject(hvtest.Fault{Call: "SaveMemory", After: true, Do: func() {
			must(t, os.Mkdir(unproven, 0o700))
			go func() {
				pass(time.Second)
				must(t, os.Remove(unproven))
			}()
		}})
		d.save("save")
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

// The kernel's report is lost with the daemon that received it.
func TestAGuestIsNotWokenFromMemoryInWhoseFlushTheDaemonDied(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.losesMemory(func(path string) {
			must(t, os.Link(path, path+".kept"))
			d.world.Disconnect()
			d.world.journal.SetDown(true)
			go d.RestartAfter(func() { // with the file as during the flush
				must(t, os.Rename(path+".kept", path))
				d.world.Reconnect()
				d.world.journal.SetDown(false)
			})
		})
		wantState(t, d.save("save"), op.StateDone, "")
		d.wakesStopped()
	}, hv.StateRunning)
}

// Another host would read the older data.
func TestAVolumeThatLacksWhatItsGuestsWroteIsNotCopiedByAnotherHost(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.images.FlushFails = func(path string) error {
			if path == pausedSrc {
				return syscall.EIO
			}
			return nil
		}
		wantState(t, d.save("save"), op.StateUndone, api.CodeIOError)
	}, hv.StateRunning)
}

// Linux reports a lost write once, and here to a daemon that dies. QEMU flushes the image as it
// saves the guest, except with cache='unsafe'.
func TestAVolumeIsNotCopiedByAnotherHostIfTheDaemonDiedInItsFlush(t *testing.T) {
	for cache, want := range map[string]op.State{"none": op.StateDone, hv.CacheUnsafe: op.StateUndone} {
		t.Run(cache, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				must(t, d.world.SetCache(pausedWeb, "vdb", cache))
				dies := op.EventStarted
				if want == op.StateUndone {
					dies = op.EventNoted
				}
				d.world.journal.AfterAppend(func(r op.Record) {
					if r.Step != "released" || r.Kind != dies {
						return
					}
					d.world.journal.AfterAppend(nil)
					d.world.journal.SetDown(true)
					go d.RestartAfter(func() { d.world.journal.SetDown(false) })
				})
				st := d.save("save")
				if st.State != want || want == op.StateUndone && st.Failure.Code != string(api.CodeIOError) {
					t.Fatalf("the op is %s: %+v, want %s", st.State, st.Failure, want)
				}
				if want == op.StateUndone { // the operator has looked at the guest
					wantState(t, d.save("again"), op.StateDone, "")
				}
			}, hv.StateRunning)
		})
	}
}

// A guest that was paused before looks the same while libvirt saves it: a restarted daemon leaves
// the file alone until libvirt has ended.
func TestASaveThatOutlivesItsDaemonIsWaitedFor(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.Inject(hvtest.Fault{Call: "SaveMemory", Err: hv.ErrUnavailable, Do: func() {
			d.world.writePart(t)
			must(t, d.world.SetSaving(pausedWeb, true))
			go func() {
				d.Restart()
				time.Sleep(time.Minute) //nolint:forbidigo // fake time
				must(t, os.Remove(d.world.part()))
				must(t, d.world.SaveMemory(t.Context(), pausedWeb, d.world.part()))
			}()
		}})
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.asleep(true))
		must(t, d.world.copied())
		wantState(t, d.restore("restore", pausedWeb, pausedDst), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedDst))
	}, hv.StateRunning)
}

// The same for a save that is then undone.
func TestTheUndoOfASaveThatWasCutOffBringsBackWhatIsWhole(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		t.Run(fmt.Sprintf("rebooted %t", rebooted), func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
				d.world.mount()
				d.world.Inject(hvtest.Fault{Call: "SaveMemory", After: true, Err: hv.ErrUnavailable, Do: func() {
					if rebooted {
						must(t, d.world.HostReboot())
						go d.reboot()
					} else {
						go d.Restart()
					}
				}})
				wantState(t, d.save("save"), op.StateUndone, api.CodeVolumeInUse)
				want := hv.StateRunning
				if rebooted {
					want = hv.StateStopped
				}
				wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
				must(t, d.world.as(pausedWeb, want, pausedSrc))
			}, hv.StateRunning)
		})
	}
}

// libvirt may have completed a call that it reports as failed.
func TestTheUndoOfASaveThatIsSaidToHaveFailedWakesTheGuest(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		d.world.Inject(hvtest.Fault{Call: "SaveMemory", After: true, Err: errRefused})
		wantState(t, d.save("save"), op.StateUndone, "")
		must(t, d.world.suspended(hv.StateRunning))
		wantState(t, d.restore("back", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateRunning, pausedSrc))
	}, hv.StateRunning)
}

// An incomplete save image does not keep an instance off after the move has released it.
func TestAPartIsNoMemoryThatKeepsAnInstanceOff(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		d.world.writePart(t)
		in := &memory.PauseInput{Memory: strings.TrimSuffix(d.world.part(), partSuffix+"boot-0")}
		must(t, os.Remove(in.Memory))
		if there, err := memory.SaveImageExists(in); there || err != nil {
			t.Errorf("SaveImageExists = %t, %v", there, err)
		}
		wantState(t, d.restore("restore", pausedWeb, pausedSrc), op.StateDone, "")
		must(t, d.world.as(pausedWeb, hv.StateStopped, pausedSrc))
	}, hv.StateRunning)
}
