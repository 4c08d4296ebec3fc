// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// withRoot runs a test with a daemon on a world with an instance web that boots from the volume, or
// has lost its root.
func withRoot(t *testing.T, has bool, f func(t *testing.T, d *daemon), edit ...func(*hv.Disk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startDaemon(t, newRootWorld(t, has, edit...))) })
}

var attachAsRoot = api.VolumeAttach{Instance: "web", Root: true}

// root returns the boot disk in the definition of instance web, nil if there is none.
func (d *daemon) root(t *testing.T) *hv.Disk {
	t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), web)
	must(t, err)
	return dom.ConfigDisk("vda")
}

func TestARootVolumeThatComesBackIsTheDiskThatItWas(t *testing.T) {
	for name, edit := range map[string]func(*hv.Disk){
		"serial of the volume":   func(*hv.Disk) {},
		"serial of its own":      func(d *hv.Disk) { d.Serial = "boot-disk" },
		"no serial":              func(d *hv.Disk) { d.Serial = "" },
		"no order of booting":    func(d *hv.Disk) { d.BootOrder = 0 },
		"on a SCSI bus":          func(d *hv.Disk) { d.Bus, d.Address = "scsi", rootAddress },
		"with an error policy":   func(d *hv.Disk) { d.ErrorPolicy = "report" },
		"with discard passed on": func(d *hv.Disk) { d.Discard = "unmap" },
	} {
		t.Run(name, func(t *testing.T) {
			withRoot(t, true, func(t *testing.T, d *daemon) {
				before := d.root(t)
				att, err := d.detach("d", "web")
				must(t, err)
				if d.root(t) != nil || !api.IsRoot(att.BootIndex) {
					t.Fatalf("after a detach: %+v, attachment %+v", d.root(t), att)
				}
				must(t, d.world.settled())
				if err := d.world.Start(web); err == nil || !strings.Contains(err.Error(), "cannot start instance web without a root device volume") {
					t.Errorf("virsh start: %v", err)
				}
				att, err = d.attach("a", attachAsRoot)
				must(t, err)
				if diff := cmp.Diff(before, d.root(t)); diff != "" || !api.IsRoot(att.BootIndex) {
					t.Errorf("attachment %+v, disk (-before +after)\n%s", att, diff)
				}
				must(t, d.world.settled())
				must(t, d.world.Start(web))
			}, edit)
		})
	}
}

// Another volume has its own id as serial; all else that the guest sees is the same.
func TestAnotherRootVolumeHasItsOwnSerialWhereTheLastHad(t *testing.T) {
	for _, own := range []bool{false, true} {
		withRoot(t, false, func(t *testing.T, d *daemon) {
			d.world.registry.root.slot.SerialOfVolume = !own
			must(t, failed(d.attach("a", attachAsRoot)))
			want := testVolume
			if own {
				want = "boot-disk"
			}
			if got := d.root(t); got == nil || got.Serial != want || got.Address != rootAddress {
				t.Errorf("the root is %+v, want serial %s", got, want)
			}
		}, func(disk *hv.Disk) { disk.Serial = "boot-disk" }) // or the id of the previous volume
	}
}

func TestARootOfWhichNothingIsKnownBootsFirst(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		d.world.registry.root.slot = nil
		must(t, failed(d.attach("a", attachAsRoot)))
		if got := d.root(t); got == nil || got.BootOrder != 1 || got.Serial != testVolume {
			t.Errorf("the root is %+v", got)
		}
		if why := d.world.guarded(); why != "" {
			t.Errorf("guarded: %s", why)
		}
	})
}

func TestARootMayBeReadOnly(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web", Root: true, Mode: api.ModeRO})))
		if got := d.root(t); got == nil || !got.ReadOnly {
			t.Errorf("the root is %+v", got)
		}
		must(t, d.world.settled())
	})
}

// The last report to the registry said that the guest runs.
func TestARootOpDoesNotWaitForTheNextReport(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		d.world.registry.reported[web] = hv.StateRunning
		must(t, failed(d.detach("d", "web")))
		d.world.registry.reported[web] = hv.StateRunning
		must(t, failed(d.attach("a", attachAsRoot)))
		must(t, d.world.settled())
	})
}

func TestARootDetachGoesOnWhileTheRegistryIsAwayAndAnAttachDoesNot(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		w := d.world
		before, err := json.Marshal(d.root(t))
		must(t, err)
		w.known[testAtt] = w.registry.rows[testAtt]
		w.registry.SetDown(true)
		g, _ := d.Now()
		att, err := g.Detach(t.Context(), "d", testVolume, api.VolumeDetach{Instance: web})
		must(t, err)
		if d.root(t) != nil || att.State != api.AttachmentDetaching || w.guarded() == "" || len(g.Queued()) != 1 {
			t.Errorf("root %+v, answered %+v, guard %q, queued %v", d.root(t), att, w.guarded(), g.Queued())
		}
		_, err = g.Attach(t.Context(), "a", "vol", attachAsRoot)
		wantCode(t, err, api.CodeRegistryUnavailable)
		d.Restart()
		w.registry.SetDown(false)
		pass(time.Minute)
		if len(w.registry.all()) != 0 || w.registry.root.slot == nil || w.registry.root.slot.Disk != string(before) || !w.registry.root.slot.SerialOfVolume {
			t.Errorf("the registry has %+v, slot %+v", w.registry.all(), w.registry.root.slot)
		}
		must(t, failed(d.attach("a", attachAsRoot)))
		must(t, w.settled())
	})
}

func TestAStartThatCameBeforeTheGuardKeepsItsRoot(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		before := d.root(t)
		d.world.startsBehindTheGuard()
		wantCode(t, failed(d.detach("d", "web")), api.CodeRootDetachForbidden)
		if diff := cmp.Diff(before, d.root(t)); diff != "" || d.world.guarded() != "" {
			t.Errorf("guard %q, root (-before +after)\n%s", d.world.guarded(), diff)
		}
		if got := d.world.registry.state(); got != api.AttachmentAttached {
			t.Errorf("the attachment is %s", got)
		}
		must(t, d.world.settled())
	})
}

func TestAGuardIsLeftWhereTheRootIsNot(t *testing.T) {
	withRoot(t, false, func(t *testing.T, d *daemon) {
		d.world.registry.refuses = api.AttachmentAttached
		wantCode(t, failed(d.attach("a", attachAsRoot)), api.CodePolicyDenied)
		must(t, d.world.settled())
		if d.world.guarded() == "" {
			t.Error("web has no root and is not guarded")
		}
	})
}

// The root was removed from the definition by hand, and the instance started without it on a host
// without the hook.
func TestAGuardIsLeftWhereADetachThatWasGivenUpFoundNoRoot(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		w := d.world
		must(t, w.Fake.DetachDisk(t.Context(), web, hv.Config, "vda"))
		w.journal.AfterAppend(func(r op.Record) {
			if r.Step == stepNameStayOff && r.Kind == op.EventStarted {
				w.runs(t)
			}
		})
		wantCode(t, failed(d.detach("d", "web")), api.CodeRootDetachForbidden)
		if w.guarded() == "" || w.registry.state() != api.AttachmentAttached {
			t.Errorf("guard %q, attachment %s", w.guarded(), w.registry.state())
		}
	})
}

func TestARootThatIsNotWhereTheLastWasIsTakenBack(t *testing.T) {
	for name, edit := range map[string]func(*hv.Disk){
		"another address":             func(d *hv.Disk) { d.Address = "pci:0000:00:0c.0" },
		"another bus":                 func(d *hv.Disk) { d.Bus = "sata" },
		"another serial":              func(d *hv.Disk) { d.Serial = "x" },
		"another place in the order":  func(d *hv.Disk) { d.BootOrder = 2 },
		"no place in the order":       func(d *hv.Disk) { d.BootOrder = 0 },
		"a chain that has no end":     func(d *hv.Disk) { d.Terminated = false },
		"what it may write is thrown": func(d *hv.Disk) { d.Transient = true },
	} {
		t.Run(name, func(t *testing.T) {
			withRoot(t, false, func(t *testing.T, d *daemon) {
				w := d.world
				w.Inject(hvtest.Fault{Call: "AttachDisk", After: true, Do: func() {
					disk := d.root(t)
					edit(disk)
					def, err := json.Marshal(disk)
					must(t, err)
					must(t, w.Fake.DetachDisk(t.Context(), web, hv.Config, "vda"))
					must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "vda", Definition: string(def)}))
				}})
				wantCode(t, failed(d.attach("a", attachAsRoot)), api.CodeChainChanged)
				must(t, w.settled())
				if d.root(t) != nil || w.guarded() == "" || len(w.registry.all()) != 0 {
					t.Errorf("root %+v, guard %q, attachments %v", d.root(t), w.guarded(), w.registry.all())
				}
			})
		})
	}
}

// It was removed from the definition by hand, then from the registry.
func TestARootAttachmentThatIsDeletedByForceLeavesAGuard(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		g, _ := d.Now()
		_, err := g.Delete(t.Context(), "there", testAtt, true)
		wantCode(t, err, api.CodeStateForbidden)
		must(t, d.world.Fake.DetachDisk(t.Context(), web, hv.Config, "vda"))
		_, err = g.Delete(t.Context(), "gone", testAtt, true)
		must(t, err)
		if d.world.guarded() == "" || len(d.world.registry.all()) != 0 {
			t.Errorf("guard %q, attachments %v", d.world.guarded(), d.world.registry.all())
		}
	})
}

func TestTheSameOpIDOfARootGivesTheSameAnswer(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		for range 2 {
			must(t, failed(d.detach("d", "web")))
		}
		first, err := d.attach("a", attachAsRoot)
		must(t, err)
		again, err := d.attach("a", attachAsRoot)
		must(t, err)
		if first.ID != again.ID {
			t.Errorf("attachments %s and %s", first.ID, again.ID)
		}
		wantCode(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})), api.CodeIdempotencyMismatch)
	})
}

func TestARootOpAndAStartComeOneAfterTheOther(t *testing.T) {
	withRoot(t, true, func(t *testing.T, d *daemon) {
		release := d.holds(t, "power/"+web)
		wantCode(t, failed(d.detach("d", "web")), api.CodeInstanceBusy)
		release()
		synctest.Wait()
		must(t, d.world.settled())
		if d.root(t) == nil {
			t.Error("an op that was refused has acted")
		}
	})
}

func TestRootAttachIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	vdc := hv.DiskSpec{Target: "vdc", Bus: "virtio"}
	for name, c := range map[string]struct {
		change func(t *testing.T, w *world)
		ask    api.VolumeAttach
		has    bool
		want   api.Code
	}{
		"running": {change: func(t *testing.T, w *world) { w.runs(t) }, ask: attachAsRoot, want: api.CodeRootAttachForbidden},
		"paused": {change: func(t *testing.T, w *world) {
			w.runs(t)
			must(t, w.SuspendByUser(web))
		}, ask: attachAsRoot, want: api.CodeRootAttachForbidden},
		"moved to another host": {change: func(t *testing.T, w *world) {
			w.runs(t)
			must(t, w.MoveAway(web))
		}, ask: attachAsRoot, want: api.CodeRootAttachForbidden},
		"shelved on its host":   {change: func(_ *testing.T, w *world) { w.registry.shelf = api.InstanceShelved }, ask: attachAsRoot, want: api.CodeRootAttachForbidden},
		"no domain":             {change: func(t *testing.T, w *world) { must(t, w.Undefine(web)) }, ask: attachAsRoot, want: api.CodeRootAttachForbidden},
		"without --root":        {ask: api.VolumeAttach{Instance: "web", Device: "vda"}, want: api.CodeRootAttachForbidden},
		"at another device":     {ask: api.VolumeAttach{Instance: "web", Root: true, Device: "vdc"}, want: api.CodeInvalidArgument},
		"an unknown mode":       {ask: api.VolumeAttach{Instance: "web", Root: true, Mode: "wo"}, want: api.CodeInvalidArgument},
		"an ephemeral disk":     {change: func(_ *testing.T, w *world) { w.registry.root.note = "not a volume" }, ask: attachAsRoot, want: api.CodeUnsupportedDisk},
		"no slot to boot from":  {change: func(_ *testing.T, w *world) { w.registry.root = nil }, ask: api.VolumeAttach{Instance: "far", Root: true}, want: api.CodeNotYourHost},
		"the volume is there":   {has: true, ask: attachAsRoot, want: api.CodeConflict},
		"the instance's lock":   {change: func(_ *testing.T, w *world) { w.registry.locked = true }, ask: attachAsRoot, want: api.CodeInstanceLocked},
		"a migration":           {change: func(_ *testing.T, w *world) { w.registry.vol.MigrationID = "m" }, ask: attachAsRoot, want: api.CodeMigrationActive},
		"at another instance":   {change: func(t *testing.T, w *world) { w.attached(t, otherAtt, db) }, ask: attachAsRoot, want: api.CodeVolumeInUse},
		"no image":              {change: func(t *testing.T, w *world) { must(t, w.Remove(volPath)) }, ask: attachAsRoot, want: api.CodeNotFound},
		"another size":          {change: func(_ *testing.T, w *world) { w.registry.vol.Location.SizeBytes++ }, ask: attachAsRoot, want: api.CodeSizeMismatch},
		"a slot that is no XML": {change: func(_ *testing.T, w *world) { w.registry.root.slot.Disk = "?" }, ask: attachAsRoot, want: api.CodeInternal},
		"a disk that nobody knows": {change: func(t *testing.T, w *world) {
			must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, w.strange("vda")))
		}, ask: attachAsRoot, want: api.CodeConflict},
		"its address is taken": {change: func(t *testing.T, w *world) {
			must(t, w.Fake.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: vdc.Target, Definition: w.strangeAt(t, rootAddress)}))
		}, ask: attachAsRoot, want: api.CodeConflict},
		"saved": {change: func(t *testing.T, w *world) {
			w.runs(t)
			must(t, w.Save(web))
		}, ask: attachAsRoot, want: api.CodeStateForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			withRoot(t, c.has, func(t *testing.T, d *daemon) {
				if c.change != nil {
					c.change(t, d.world)
				}
				rows := len(d.world.registry.all())
				_, err := d.attach("a", c.ask)
				if err == nil {
					t.Fatal("it is done")
				}
				wantCode(t, err, c.want)
				if len(d.world.registry.all()) != rows || len(d.world.registry.changes) != 0 {
					t.Errorf("the registry was told %v", d.world.registry.changes)
				}
			})
		})
	}
}

func TestRootDetachIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, w *world)
		want   api.Code
		says   string
	}{
		"running": {change: func(t *testing.T, w *world) { must(t, w.Start(web)) }, want: api.CodeRootDetachForbidden, says: "cannot detach root device volume vol from instance web: it is running; stop it first"},
		"paused": {change: func(t *testing.T, w *world) {
			must(t, w.Start(web))
			must(t, w.SuspendByUser(web))
		}, want: api.CodeRootDetachForbidden, says: "it is paused"},
		"running, the registry away": {change: func(t *testing.T, w *world) {
			must(t, w.Start(web))
			w.known[testAtt] = w.registry.rows[testAtt]
			w.registry.SetDown(true)
		}, want: api.CodeRootDetachForbidden},
		"shelved on its host": {change: func(_ *testing.T, w *world) { w.registry.shelf = api.InstanceShelved }, want: api.CodeRootDetachForbidden, says: "it is shelved"},
		"moved to another host": {change: func(t *testing.T, w *world) {
			must(t, w.Start(web))
			must(t, w.MoveAway(web))
		}, want: api.CodeRootDetachForbidden},
		"no domain":                {change: func(t *testing.T, w *world) { must(t, w.Undefine(web)) }, want: api.CodeRootDetachForbidden},
		"the instance's lock":      {change: func(_ *testing.T, w *world) { w.registry.locked = true }, want: api.CodeInstanceLocked},
		"migration by the journal": {change: func(_ *testing.T, w *world) { w.migrations.open = []api.Migration{{ID: "m", VolumeID: testVolume}} }, want: api.CodeMigrationActive},
		"saved": {change: func(t *testing.T, w *world) {
			must(t, w.Start(web))
			must(t, w.Save(web))
		}, want: api.CodeStateForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			withRoot(t, true, func(t *testing.T, d *daemon) {
				c.change(t, d.world)
				g, _ := d.Now()
				for _, force := range []bool{false, true} {
					_, err := g.Detach(t.Context(), map[bool]string{false: "d", true: "f"}[force], testVolume, api.VolumeDetach{Instance: web, Force: force})
					wantCode(t, err, c.want)
					if !strings.Contains(err.Error(), c.says) {
						t.Errorf("it says: %v", err)
					}
				}
				if len(d.world.registry.changes) != 0 || d.world.guarded() != "" {
					t.Errorf("the registry was told %v, guard %q", d.world.registry.changes, d.world.guarded())
				}
			})
		})
	}
}

// runs starts instance web despite its guards.
func (w *world) runs(t *testing.T) {
	t.Helper()
	w.guards.Let(true)
	must(t, w.Start(web))
	w.guards.Let(false)
}

// strange returns a disk that is no volume.
func (w *world) strange(target string) hv.DiskSpec {
	return hv.DiskSpec{Target: target, Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/roots/web.raw"}}
}

func (w *world) strangeAt(t *testing.T, address string) string {
	t.Helper()
	def, err := json.Marshal(hv.Disk{
		Target: "vdc", Bus: "virtio", Device: "disk", Address: address, Terminated: true, Chain: []hv.Image{w.strange("vdc").Image},
	})
	must(t, err)
	return string(def)
}
