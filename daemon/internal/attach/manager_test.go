// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// inBubble runs a test with a daemon on a world with instances in these states.
func inBubble(t *testing.T, f func(t *testing.T, d *daemon), states ...hv.State) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startDaemon(t, newWorld(t, states...))) })
}

func (d *daemon) manager() *Manager {
	g, _ := d.Now()
	return g
}

func (d *daemon) attach(opID string, in api.VolumeAttach) (api.Attachment, error) {
	return d.manager().Attach(context.Background(), opID, "vol", in)
}

func (d *daemon) detach(opID, instanceID string) (api.Attachment, error) {
	return d.manager().Detach(context.Background(), opID, testVolume, api.VolumeDetach{Instance: instanceID})
}

// failed returns the error of a call.
func failed(_ api.Attachment, err error) error { return err }

// holds makes an op of another kind take a turn until release.
func (d *daemon) holds(t *testing.T, key string) (release func()) {
	t.Helper()
	_, runner := d.Now()
	held := make(chan struct{})
	d.hold <- held
	must(t, runner.Submit(t.Context(), op.Op{ID: "held", Kind: kindHold, Keys: []string{key}, Input: []byte("{}")}))
	return func() { close(held) }
}

// wantNone checks that the registry has no attachment.
func (w *world) wantNone(t *testing.T) {
	t.Helper()
	if left := w.registry.all(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// disks returns the disk vdb of a domain, running and defined.
func (d *daemon) disks(t *testing.T, id string) (live, config *hv.Disk) {
	t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), id)
	must(t, err)
	return dom.LiveDisk("vdb"), dom.ConfigDisk("vdb")
}

func TestAnAttachedVolumeIsTheSameDiskInGuestAndDefinition(t *testing.T) {
	for _, state := range states {
		for _, mode := range []api.Mode{"", api.ModeRW, api.ModeRO} {
			t.Run(string(state)+" "+string(mode), func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *daemon) {
					att, err := d.attach("a", api.VolumeAttach{Instance: "web", Mode: mode})
					must(t, err)
					if att.Device != "vdb" || att.State != api.AttachmentAttached {
						t.Errorf("attachment %+v", att)
					}
					live, config := d.disks(t, web)
					if config == nil || config.Serial != testVolume || config.ReadOnly != (mode == api.ModeRO) || config.Bus != "virtio" || config.Shareable {
						t.Errorf("the definition has %+v", config)
					}
					if state.Active() && (live == nil || !sameDisk(*live, *config)) {
						t.Errorf("the guest has %+v, its definition %+v", live, config)
					}
					must(t, d.world.settled())
				}, state)
			})
		}
	}
}

func TestADiskOfAMultiattachVolumeIsShareable(t *testing.T) {
	t.Run("in a file", func(t *testing.T) { testShareable(t, func(*world) {}) })
	t.Run("at an RBD image, of which the other guest is a client", func(t *testing.T) { testShareable(t, func(w *world) { w.atImage(t) }) })
}

func testShareable(t *testing.T, where func(w *world)) {
	t.Helper()
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.registry.vol.Multiattach = true
		where(d.world)
		for _, instance := range []string{"web", "db"} {
			must(t, failed(d.attach("attach "+instance, api.VolumeAttach{Instance: instance})))
		}
		for _, id := range []string{web, db} {
			if live, config := d.disks(t, id); live == nil || !live.Shareable || !config.Shareable {
				t.Errorf("%s has %+v", id, live)
			}
		}
		must(t, d.world.settled())
	}, hv.StateRunning, hv.StateRunning)
}

// Both detaches begin together, and take different times.
func TestTheLocationIsDisconnectedOnceAndWithTheLastOfTwoAttachments(t *testing.T) {
	for _, states := range [][]hv.State{
		{hv.StateRunning, hv.StateRunning}, {hv.StateStopped, hv.StateRunning}, {hv.StateStopped, hv.StateStopped},
	} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.registry.vol.Multiattach = true
			w.attached(t, testAtt, web)
			w.attached(t, otherAtt, db)
			must(t, w.SetUnplug(web, hvtest.UnplugWaits))
			time.AfterFunc(10*time.Second, func() { _ = w.ReleaseDevice(web, "vdb") })
			ends := make(chan error, 2)
			for _, id := range []string{web, db} {
				go func() { _, err := d.detach("detach "+id, id); ends <- err }()
			}
			must(t, errors.Join(<-ends, <-ends))
			if w.images.Disconnects != 1 || w.images.Early {
				t.Errorf("disconnected %d times, while a guest had it: %t", w.images.Disconnects, w.images.Early)
			}
			must(t, w.settled())
		}, states...)
	}
}

func TestOneOfTwoAttachmentsLeavesTheLocationConnected(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.registry.vol.Multiattach = true
		d.world.attached(t, testAtt, web)
		d.world.attached(t, otherAtt, db)
		must(t, failed(d.detach("d", web)))
		if d.world.images.Disconnects != 0 {
			t.Error("the location was disconnected while db has it")
		}
		if live, _ := d.disks(t, db); live == nil {
			t.Error("db lost the disk")
		}
	}, hv.StateRunning, hv.StateRunning)
}

func TestAGuestThatDoesNotLetGoKeepsItsDiskAsItWas(t *testing.T) {
	for _, how := range []hvtest.Unplug{hvtest.UnplugWaits, hvtest.UnplugRefuses} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.attached(t, testAtt, web)
			_, before := d.disks(t, web)
			must(t, w.SetUnplug(web, how))
			began := time.Now()
			wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
			if took := time.Since(began); took < DefaultUnplugTimeout || took > DefaultUnplugTimeout+time.Second {
				t.Errorf("it took %v", took)
			}
			live, after := d.disks(t, web)
			if live == nil || after == nil || !sameDisk(*before, *after) {
				t.Errorf("the definition had %+v and has %+v; the guest has %+v", before, after, live)
			}
			must(t, w.settled())
		}, hv.StateRunning)
	}
}

func TestAGuestThatIsSlowIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugRefuses))
		time.AfterFunc(12*time.Second, func() { _ = w.SetUnplug(web, hvtest.UnplugAtOnce) })
		must(t, failed(d.detach("d", web)))
		must(t, w.settled())
	}, hv.StateRunning)
}

func TestAPausedGuestIsNotAskedBeforeItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		wantCode(t, failed(d.detach("never resumed", web)), api.CodeInstanceBusy)
		if w.Leaving(web, "vdb") {
			t.Error("a request is left, which the guest would answer when nobody asks any more")
		}
		must(t, w.settled())
		resumeAfter(w, 20*time.Second)
		must(t, failed(d.detach("resumed", web)))
		must(t, w.settled())
	}, hv.StatePaused)
}

func TestAGuestThatLetsGoTooLateGetsTheDiskBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.attached(t, testAtt, web)
			must(t, w.SetUnplug(web, hvtest.UnplugWaits))
			wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
			if restart {
				d.Restart()
			}
			must(t, w.ReleaseDevice(web, "vdb"))
			synctest.Wait()
			if live, _ := d.disks(t, web); live == nil {
				t.Error("the guest was told to keep the disk and has it no more")
			}
			must(t, w.settled())
		}, hv.StateRunning)
	}
}

// The undo of the live detach finds the disk in the guest, which restarts before its definition has
// the disk again.
func TestAGuestThatRestartsBeforeItsDefinitionIsPutBackGetsTheDisk(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		w.Inject(hvtest.Fault{Call: "AttachDisk", Do: func() {
			must(t, w.Destroy(web))
			must(t, w.Start(web))
		}})
		wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
		synctest.Wait()
		must(t, w.settled())
	}, hv.StateRunning)
}

// QEMU's pending unplug may remove the disk during a move.
func TestAVolumeWhoseGuestMayStillLetGoOfItDoesNotMove(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.attached(t, testAtt, web)
			must(t, d.world.unplugs.MayMove(context.Background(), testVolume))
			must(t, w.SetUnplug(web, hvtest.UnplugWaits))
			wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
			if restart {
				d.Restart()
			}
			wantCode(t, d.world.unplugs.MayMove(context.Background(), testVolume), api.CodeInstanceBusy)
			must(t, d.world.unplugs.MayMove(context.Background(), "another"))
			must(t, w.Save(web)) // and its process, with the requests
			pass(restoreEvery)
			must(t, w.Start(web))
			wantCode(t, d.world.unplugs.MayMove(context.Background(), testVolume), api.CodeInstanceBusy)
			must(t, w.Destroy(web)) // the process and its requests are gone
			must(t, d.world.unplugs.MayMove(context.Background(), testVolume))
			must(t, w.Start(web))
			d.Restart() // and the journal's pending unplugs are read again
			must(t, d.world.unplugs.MayMove(context.Background(), testVolume))
		}, hv.StateRunning)
	}
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		wantCode(t, failed(d.detach("never resumed", web)), api.CodeInstanceBusy)
		must(t, d.world.unplugs.MayMove(context.Background(), testVolume)) // it was not asked
	}, hv.StatePaused)
}

// The guest's release of the disk would make rules that deny it a cancel of another disk's move.
func TestAnotherVolumeOfAConfinedGuestDoesNotMoveWhileTheGuestMayStillLetGoOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		may := func(instance string) error { return d.world.unplugs.MayOverlay(context.Background(), instance, "root") }
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
		must(t, may(web)) // no rules confine the guest
		w.Confine("/etc/apparmor.d/libvirt/libvirt-x.files")
		must(t, may(db))
		err := may(web)
		wantCode(t, err, api.CodeInstanceBusy)
		if !strings.Contains(err.Error(), "cannot migrate volume root") || !strings.Contains(err.Error(), "detach volume vol, or stop") {
			t.Errorf("%q does not say which volume stands in the way", err)
		}
		d.Restart()
		wantCode(t, may(web), api.CodeInstanceBusy)

		w.Inject(hvtest.Fault{Call: "DeniesBelow", Err: hv.ErrNoProcess})
		must(t, may(web))
		w.Inject(hvtest.Fault{Call: "DeniesBelow", Err: &hv.NotAskedError{Err: errors.New("no answer")}})
		wantCode(t, request.Refused(may(web)), api.CodeHypervisorUnavailable)

		must(t, w.Destroy(web)) // the process and its requests are gone
		must(t, may(web))
		must(t, w.Start(web))
		must(t, may(web))
	}, hv.StateRunning)
}

// The refusal of a repair gives this advice.
func TestADiskThatSomebodyHasTakenOutOfTheDefinitionIsAttachedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		must(t, d.world.Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
		must(t, failed(d.detach("d", "web")))
		must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web", Device: "vdb"})))
		if _, config := d.disks(t, web); config == nil || config.Top().Path != volPath {
			t.Errorf("the definition has %+v", config)
		}
	}, hv.StateStopped)
	withRoot(t, true, func(t *testing.T, d *daemon) {
		must(t, d.world.Fake.DetachDisk(t.Context(), web, hv.Config, "vda"))
		must(t, failed(d.detach("d", "web")))
		must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web", Device: "vda", Root: true})))
		if root := d.root(t); root == nil || root.Top().Path != volPath || d.world.guarded() != "" {
			t.Errorf("root %+v, guard %q", root, d.world.guarded())
		}
	})
}

func TestADetachThatCouldNotStoreWhatTheGuestWroteSaysSoInTheAuditTrail(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.images.FlushFails = func(string) error { return syscall.EIO }
		must(t, failed(d.detach("d", web)))
		if len(w.events) != 1 || w.events[0].What != "volume.not_stored" || w.events[0].Object != "volume/"+testVolume || w.events[0].Details["path"] == "" {
			t.Errorf("events: %+v", w.events)
		}
	}, hv.StateRunning)
}

// Only rules of a running guest that libvirt confines may keep another disk's migration from its
// cancel.
func TestAnAttachAndADetachWhileAnotherDiskMoves(t *testing.T) {
	for _, c := range []struct {
		state    hv.State
		confined bool
		method   string
	}{{hv.StateRunning, false, api.MethodOverlay}, {hv.StateStopped, true, api.MethodOverlay}, {hv.StateRunning, true, api.MethodMirror}} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.migrations.open = []api.Migration{{ID: "m", VolumeID: otherAtt, InstanceID: web, Method: c.method, Src: api.Location{Path: "/old/root.raw"}}}
			if c.confined {
				w.Confine("/etc/apparmor.d/libvirt/libvirt-x.files")
			}
			must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
			must(t, failed(d.detach("d", web)))
		}, c.state)
	}
}

// The move of another disk begins while the attach waits for its turn.
func TestAnAttachToAConfinedGuestIsRefusedAtItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.Confine("/etc/apparmor.d/libvirt/libvirt-x.files")
		w.Inject(hvtest.Fault{Call: "QEMUUser", Do: func() { // a check before the op begins
			w.migrations.open = []api.Migration{{ID: "m", VolumeID: otherAtt, InstanceID: web, Method: api.MethodOverlay, Src: api.Location{Path: "/old/root.raw"}}}
		}})
		err := failed(d.attach("a", api.VolumeAttach{Instance: "web"}))
		wantCode(t, err, api.CodeInstanceBusy)
		if api.AsError(err).Details["migration_id"] != "m" {
			t.Errorf("%q does not name the migration", err)
		}
		if live, config := d.disks(t, web); live != nil || config != nil || len(w.registry.all()) != 0 {
			t.Errorf("the guest has %+v, its definition %+v, the registry %+v", live, config, w.registry.all())
		}
		wantCode(t, failed(d.attach("b", api.VolumeAttach{Instance: "web"})), api.CodeInstanceBusy)
		_, runner := d.Now()
		if _, err := runner.Status(t.Context(), "b"); !errors.Is(err, op.ErrNotFound) {
			t.Errorf("the refused attach has made an op: %v", err)
		}
	}, hv.StateRunning)
}

func TestADetachGoesOnWhileTheRegistryIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.known[testAtt] = w.registry.rows[testAtt]
		w.registry.SetDown(true)
		att, err := d.detach("d", web)
		must(t, err)
		g, _ := d.Now()
		if live, config := d.disks(t, web); live != nil || config != nil || att.State != api.AttachmentDetaching {
			t.Errorf("the guest has %+v, its definition %+v, answered %+v", live, config, att)
		}
		if q := g.Queued(); len(q) != 1 || q[0].ID != testAtt {
			t.Errorf("queued: %+v", q)
		}
		d.Restart()
		w.registry.SetDown(false)
		g, runner := d.Now()
		runner.Wake(request.WaitRegistry)
		synctest.Wait()
		if len(w.registry.all()) != 0 || len(g.Queued()) != 0 {
			t.Errorf("the registry still has %+v", w.registry.all())
		}
	}, hv.StateRunning)
}

func TestWhatTheHostDoesNotKnowIsNotDetachedWithoutTheRegistry(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		d.world.registry.SetDown(true)
		wantCode(t, failed(d.detach("d", web)), api.CodeRegistryUnavailable)
	}, hv.StateRunning)
}

func TestAnAttachNeedsTheRegistryBeforeAnyEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.registry.SetDown(true)
		wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeRegistryUnavailable)
		if _, config := d.disks(t, web); config != nil {
			t.Error("the disk is there")
		}
		if _, err := d.world.journal.Op(t.Context(), "a"); !errors.Is(err, op.ErrNotFound) {
			t.Errorf("an op was begun: %v", err)
		}
	}, hv.StateRunning)
}

func TestAFencedHostTouchesNothingOfWhatItLost(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.registry.Fence(testHost)
		wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeStaleEpoch)
		must(t, d.world.settled())
	}, hv.StateRunning)
	inBubble(t, func(t *testing.T, d *daemon) {
		d.world.attached(t, testAtt, web)
		d.world.registry.Fence(testHost)
		wantCode(t, failed(d.detach("d", web)), api.CodeStaleEpoch)
		must(t, d.world.settled())
	}, hv.StateRunning)
}

func TestDeleteByForceLeavesAGuestsDiskAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		g, _ := d.Now()
		_, err := g.Delete(t.Context(), "in use", testAtt, true)
		wantCode(t, err, api.CodeStateForbidden)
		must(t, w.settled())
		must(t, w.Fake.DetachDisk(t.Context(), web, hv.Live, "vdb"))
		_, err = g.Delete(t.Context(), "defined", testAtt, true)
		wantCode(t, err, api.CodeStateForbidden)
		must(t, w.Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
		_, err = g.Delete(t.Context(), "gone", testAtt, true)
		must(t, err)
		w.wantNone(t)
	}, hv.StateRunning)
}

func TestWhatADeadOpLeftGoesByForceAndOnlyByForce(t *testing.T) {
	for _, state := range []api.AttachmentState{api.AttachmentReserved, api.AttachmentAttaching, api.AttachmentDetaching, api.AttachmentError} {
		for name, end := range map[string]func(*Manager) error{
			"delete": func(g *Manager) error {
				_, err := g.Delete(context.Background(), "d", testAtt, true)
				return err
			},
			"detach": func(g *Manager) error {
				_, err := g.Detach(context.Background(), "d", "vol", api.VolumeDetach{Instance: "web", Force: true})
				return err
			},
		} {
			t.Run(string(state)+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *daemon) {
					in := d.world.input(testAtt, web)
					d.world.registry.rows[testAtt] = in.attachment(state)
					g, _ := d.Now()
					if state == api.AttachmentReserved || state == api.AttachmentAttaching {
						_, err := g.Delete(t.Context(), "without", testAtt, false)
						wantCode(t, err, api.CodeConflict)
					}
					must(t, end(g))
					d.world.wantNone(t)
				}, hv.StateRunning)
			})
		}
	}
}

func TestTheSameOpIDGivesTheSameAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		first, err := d.attach("a", api.VolumeAttach{Instance: "web"})
		must(t, err)
		again, err := d.attach("a", api.VolumeAttach{Instance: "web"})
		must(t, err)
		if first.ID != again.ID {
			t.Errorf("attachments %s and %s", first.ID, again.ID)
		}
		wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "db"})), api.CodeIdempotencyMismatch)
	}, hv.StateRunning)
}

func TestBeginAnswersWithTheRefusalOrAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		g, runner := d.Now()
		w.attached(t, testAtt, web)
		must(t, w.SetUnplug(web, hvtest.UnplugWaits))
		began := time.Now()
		att, err := g.BeginDetach(t.Context(), "d", "vol", api.VolumeDetach{Instance: "web"})
		must(t, err)
		if took := time.Since(began); took > time.Second || att.ID != testAtt {
			t.Errorf("after %v: %+v", took, att)
		}
		synctest.Wait() // until the guest was asked
		must(t, w.ReleaseDevice(web, "vdb"))
		st, err := runner.Wait(t.Context(), "d")
		must(t, err)
		if st.State != op.StateDone {
			t.Errorf("the op ended %s", st.State)
		}
		w.registry.vol.Generation++
		w.registry.onVolume = func(v *api.Volume) { v.Generation = 1 } // the observed generation is old
		_, err = g.BeginAttach(t.Context(), "a", "vol", api.VolumeAttach{Instance: "web"})
		wantCode(t, err, api.CodeStaleGeneration)
	}, hv.StateRunning)
}

func TestAnOpThatGetsNoTurnBehindAMigrationIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		release := d.holds(t, "instance/"+web)
		wantCode(t, failed(d.detach("d", web)), api.CodeInstanceBusy)
		release()
		synctest.Wait()
		must(t, w.settled())
		if live, _ := d.disks(t, web); live == nil || slices.Contains(w.registry.changes, api.AttachmentDetaching) {
			t.Error("an op that was refused has acted")
		}
	}, hv.StateRunning)
}

func TestAMigrationThatBeganWhileADetachWaitedForItsTurnIsNotDisturbed(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		release := d.holds(t, "instance/"+web)
		end := make(chan error)
		go func() { _, err := d.detach("d", web); end <- err }()
		pass(time.Second)
		w.registry.SetDown(true)
		w.migrations.open = []api.Migration{{ID: "m", VolumeID: testVolume}}
		release()
		pass(time.Second)
		w.registry.SetDown(false)
		wantCode(t, <-end, api.CodeMigrationActive)
		must(t, w.settled())
	}, hv.StateRunning)
}

func TestADiskThatIsNotAsItWasAskedForIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.Inject(hvtest.Fault{Call: "AttachDisk", Nth: 2, After: true, Do: func() {
			must(t, w.Fake.DetachDisk(t.Context(), web, hv.Live, "vdb"))
			spec := (&input{DiskAttachment: api.DiskAttachment{Device: "vdb"}, Location: w.registry.vol.Location}).disk()
			must(t, w.Fake.AttachDisk(t.Context(), web, hv.Live, spec)) // without the serial
		}})
		wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeChainChanged)
		must(t, w.settled())
		w.wantNone(t)
	}, hv.StateRunning)
}

func TestAskingAgainIsTheWordToLookAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		w.registry.refuses = "released"
		wantCode(t, failed(d.detach("d", web)), api.CodeNeedsOperator)
		w.registry.refuses = ""
		wantCode(t, failed(d.detach("again", web)), api.CodeNotFound) // the first detach has ended it
		must(t, w.settled())
		w.wantNone(t)
	}, hv.StateRunning)
}

func TestACallerIsToldOfAGuestThatDoesNotLetGoOfWhatItMayNotKeep(t *testing.T) {
	for _, how := range []hvtest.Unplug{hvtest.UnplugWaits, hvtest.UnplugRefuses} {
		inBubble(t, func(t *testing.T, d *daemon) {
			w := d.world
			w.registry.refuses = api.AttachmentAttached
			must(t, w.SetUnplug(web, how))
			began := time.Now()
			wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeInstanceBusy)
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			if len(w.registry.all()) != 1 {
				t.Error("the volume was given back and the guest has it")
			}
			must(t, w.SetUnplug(web, hvtest.UnplugAtOnce))
			pass(time.Minute)
			must(t, w.settled())
			w.wantNone(t)
		}, hv.StateRunning)
	}
}

func TestAVolumeIsNotGivenBackIfADomainHasItAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.attached(t, testAtt, web)
		in := w.input(testAtt, web)
		w.images.OnDisconnect = func() { must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, in.disk())) }
		wantCode(t, failed(d.detach("d", web)), api.CodeNeedsOperator)
		if got := w.registry.state(); got != api.AttachmentDetaching {
			t.Errorf("the attachment is %q", got)
		}
	}, hv.StateRunning)
}

func TestALocationIsNotDisconnectedUnderAnAttachmentOfTheRegistry(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.registry.vol.Multiattach = true
		w.attached(t, testAtt, web)
		other := w.input(otherAtt, db)
		w.registry.rows[otherAtt] = other.attachment(api.AttachmentAttaching)
		must(t, failed(d.detach("d", web)))
		if w.images.Disconnects != 0 {
			t.Error("the location was disconnected")
		}
	}, hv.StateRunning)
}

func TestTheGuestGetsTheAddressThatTheDefinitionChose(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		w := d.world
		const path = "/roots/next.raw"
		must(t, w.CreateImage(path, hvtest.Raw, testSize))
		// Defined by hand for the next start, at the first free address.
		must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{
			Target: "vdq", Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path},
		}))
		must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
		if live, config := d.disks(t, web); live == nil || live.Address != config.Address {
			t.Errorf("the guest has %+v, its definition %+v", live, config)
		}
	}, hv.StateRunning)
}

func TestDevicesAreNamedAsLinuxNamesThem(t *testing.T) {
	var got []string
	for _, n := range []int{0, 25, 26, 51, 52, 701, 702} {
		got = append(got, letters(n))
	}
	if want := "a z aa az ba zz aaa"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
