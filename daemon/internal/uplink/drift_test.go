// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// reported returns the last report's entry of an instance.
func (w *world) reported(id string) api.InstanceReport {
	w.t.Helper()
	all := w.report().Instances
	i := slices.IndexFunc(all, func(r api.InstanceReport) bool { return r.ID == id })
	if i < 0 {
		w.t.Fatalf("the report has nothing of instance %s: %+v", id, all)
	}
	return all[i]
}

func TestADomainThatIsGoneIsAnError(t *testing.T) {
	running(t, func(w *world) {
		w.must(w.fake.Destroy(web))
		w.must(w.fake.Undefine(web))
		pass(time.Minute)
		if r := w.reported(web); r.State != api.InstanceError || !strings.Contains(r.Note, "gone") {
			t.Errorf("the report is %+v", r)
		}
		if r := w.reported(db); r.State != api.InstanceRunning || r.Note != "" {
			t.Errorf("the report of another one is %+v", r)
		}
		if notes := w.up.Notes(); len(notes) != 1 || notes[0].InstanceName != "web" {
			t.Errorf("notes %+v", notes)
		}
		w.define("web", web, "/nfs/web.raw")
		pass(time.Minute)
		if r := w.reported(web); r.State != api.InstanceStopped || r.Note != "" || len(w.up.Notes()) > 0 {
			t.Errorf("it is back, and the report is %+v, notes %+v", r, w.up.Notes())
		}
	})
}

// After virsh undefine, and virsh define of a definition without a UUID.
func TestADomainThatHasAnotherUUIDSaysHowItGetsItsOwnBack(t *testing.T) {
	running(t, func(w *world) {
		const other = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0bbb"
		w.must(w.fake.Destroy(web))
		w.must(w.fake.Undefine(web))
		w.define("web", other, "/nfs/web.raw")
		pass(time.Minute)
		r := w.reported(web)
		if r.State != api.InstanceError || !strings.Contains(r.Note, "with UUID "+other) || !strings.Contains(r.Note, "<uuid>"+web+"</uuid>") || strings.Contains(r.Note, "forget") {
			t.Errorf("the report is %+v", r)
		}
	})
}

func TestAGuestThatWasMovedToAnotherHostIsNotStopped(t *testing.T) {
	running(t, func(w *world) {
		w.must(w.fake.MoveAway(web))
		pass(time.Minute)
		if r := w.reported(web); r.State != api.InstanceError || !strings.Contains(r.Note, "moved to another host") {
			t.Errorf("the report is %+v", r)
		}
		w.must(w.fake.Start(web)) // it is back
		pass(time.Minute)
		if r := w.reported(web); r.State != api.InstanceRunning || r.Note != "" {
			t.Errorf("it is back, and the report is %+v", r)
		}
	})
}

func TestAnotherDiskThanTheAttachmentsIsNoted(t *testing.T) {
	running(t, func(w *world) {
		w.must(w.fake.CreateImage("/nfs/other.raw", "raw", 4096))
		w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: "raw", Path: "/nfs/other.raw"}}))
		pass(time.Minute)
		r := w.reported(web)
		if r.State != api.InstanceRunning || !strings.Contains(r.Note, "/nfs/other.raw") || !strings.Contains(r.Note, "/nfs/web.raw") {
			t.Errorf("the report is %+v", r)
		}
		misnamed := func() bool {
			return slices.ContainsFunc(w.up.Notes(), func(n Note) bool { return n.Misnamed })
		}
		if misnamed() {
			t.Error("a running instance cannot be repaired, and its note says so")
		}
		w.must(w.fake.Destroy(web))
		pass(time.Minute)
		if !misnamed() {
			t.Errorf("the instance is off, and the notes are %+v", w.up.Notes())
		}
	})
}

// Its definition is right again, but it still writes to the image of its start.
func TestAGuestThatRunsOnAnotherImageThanItsDefinitionIsNoted(t *testing.T) {
	running(t, func(w *world) {
		w.must(w.fake.CreateImage("/nfs/old.raw", "raw", 4096))
		w.must(w.fake.Destroy(web))
		w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: "raw", Path: "/nfs/old.raw"}}))
		w.must(w.fake.Start(web))
		w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: "raw", Path: "/nfs/web.raw"}}))
		pass(time.Minute)
		if r := w.reported(web); !strings.Contains(r.Note, "the running guest's disk vda is at /nfs/old.raw") || !r.Differs {
			t.Errorf("the report is %+v", r)
		}
		if notes := w.up.Notes(); len(notes) != 1 || !notes[0].RunsElsewhere {
			t.Errorf("the notes are %+v, want one of a guest that runs elsewhere", notes)
		}
		w.must(w.fake.Destroy(web))
		pass(time.Minute)
		if notes := w.up.Notes(); slices.ContainsFunc(notes, func(n Note) bool { return n.RunsElsewhere }) {
			t.Errorf("the guest is off, and the notes are %+v", notes)
		}
	})
}

// First the definition changes from src to dst, and then the registry has dst while this host's
// view has not.
func TestAMoveIsNotNoted(t *testing.T) {
	running(t, func(w *world) {
		w.moving(api.Migration{ID: "m", VolumeID: "volume-web"})
		w.must(w.fake.CreateImage("/nfs/dst.raw", "raw", 4096))
		w.must(w.fake.Destroy(web))
		w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: "raw", Path: "/nfs/dst.raw"}}))
		w.must(w.fake.Start(web))
		noted := func() {
			t.Helper()
			w.registry.Lock()
			defer w.registry.Unlock()
			for _, report := range w.registry.reports {
				for _, r := range report.Instances {
					if r.Note != "" {
						t.Fatalf("it is noted: %s", r.Note)
					}
				}
			}
		}
		pass(time.Minute)
		noted()
		w.registry.set(func() { w.registry.attachments[0].Location.Path = "/nfs/dst.raw" })
		w.moving()
		pass(time.Minute)
		noted()
	})
}

func TestAnInstanceOnTheShelfIsNotMissed(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.instances[0].State = api.InstanceShelved
		w.start()
		pass(time.Minute)
		w.must(w.fake.Destroy(web))
		w.must(w.fake.Undefine(web))
		pass(time.Minute)
		if notes := w.up.Notes(); len(notes) > 0 {
			t.Errorf("notes %+v", notes)
		}
		w.kill()
	})
}

// The guard of an instance without a root volume was lost with the state directory.
func TestARootGuardThatIsMissingIsSetAgain(t *testing.T) {
	bubble(t, func(w *world) {
		zero := 0
		empty := []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero}}
		w.registry.instances[0].BlockDeviceMappings, w.registry.instances[1].BlockDeviceMappings = empty, empty
		w.registry.attachments = nil
		w.must(w.fake.Destroy(web))
		w.must(w.fake.DetachDisk(t.Context(), web, hv.Config, "vda")) // db's definition has a disk at that device
		w.start()
		pass(time.Minute)
		if has, _ := w.guards.Has(web, guard.OwnerRoot); !has || !strings.Contains(w.guards.Reasons(web), "root device volume") {
			t.Errorf("the guards are %v", w.guards.Guarded())
		}
		if has, _ := w.guards.Has(db, guard.OwnerRoot); has {
			t.Error("an instance that has a disk to boot from is guarded")
		}
		w.kill()
	})
}

// A fence must find the volumes of an instance that this host takes from the shelf.
func TestWhatComesFromTheShelfIsGranted(t *testing.T) {
	w := newWorld(t)
	const mail = "20000000-0000-4000-8000-000000000003"
	a := granted("mail", mail, "/nfs/mail.raw")
	a.Host = ""
	site := w.siteAt(func(rw http.ResponseWriter, _ *http.Request) {
		_ = httpjson.Write(rw, http.StatusOK, "shelved_instance", api.ShelvedInstance{Attachments: []api.Attachment{a}})
	})
	move := api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, Host: thisHost}
	if _, err := site.TransitionInstance(t.Context(), "op", mail, move); err != nil {
		t.Fatal(err)
	}
	if _, known := w.up.Known(t.Context(), a.ID); known {
		t.Error("what leaves this host is granted")
	}
	move.From, move.To = move.To, move.From
	if _, err := site.TransitionInstance(t.Context(), "op", mail, move); err != nil {
		t.Fatal(err)
	}
	if got, known := w.up.Known(t.Context(), a.ID); !known || got.Location.Path != "/nfs/mail.raw" {
		t.Errorf("granted is %+v (%t)", got, known)
	}
}

func TestAnInstanceIsKnownWithItsGrantsWhileTheRegistryIsAway(t *testing.T) {
	bubble(t, func(w *world) {
		zero := 0
		w.registry.instances[0].BlockDeviceMappings = []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero}}
		w.registry.instances[1].Host = "beta"
		w.registry.attachments = nil
		w.start()
		pass(time.Minute)
		w.must(w.up.grant(granted("web", web, "/nfs/web.raw")))
		for _, ref := range []string{"web", web, web[:6]} {
			inst, known := w.up.KnownInstance(t.Context(), ref)
			if ref == web[:6] {
				known = known && inst.ID == web
			}
			if !known || inst.BlockDeviceMappings[0].VolumeID == nil {
				t.Errorf("%s is known: %t, %+v", ref, known, inst)
			}
		}
		if _, known := w.up.KnownInstance(t.Context(), "db"); known {
			t.Error("another host's instance is known as this one's")
		}
		w.kill()
	})
}

// The registry was restored from a backup without the move.
func TestAnInstanceThatIsSavedForAMoveWhichTheRegistryDoesNotKnowIsNoted(t *testing.T) {
	bubble(t, func(w *world) {
		const known, unknown = "50000000-0000-4000-8000-000000000001", "50000000-0000-4000-8000-000000000002"
		w.must(w.guards.Set(web, guard.OwnerPause+unknown, "saved"))
		w.must(w.guards.Set(db, guard.OwnerPause+known, "saved"))
		for i := range w.registry.instances {
			if w.registry.instances[i].ID == db {
				w.registry.instances[i].Locked, w.registry.instances[i].LockedBy = true, known
			}
		}
		w.start()
		pass(time.Minute)
		if r := w.reported(web); !strings.Contains(r.Note, "volferryctl migration cancel "+unknown) {
			t.Errorf("the report is %+v", r)
		}
		if r := w.reported(db); r.Note != "" {
			t.Errorf("the report of the other is %+v", r)
		}
		if notes := w.up.Notes(); len(notes) != 1 || notes[0].InstanceID != web {
			t.Errorf("notes %+v", notes)
		}
		w.kill()
	})
}

func TestADiskThatIsNotWhereItsVolumeIsIsReportedAsThatAndARemarkIsNot(t *testing.T) {
	running(t, func(w *world) {
		written := "/old/db.raw was written since"
		var remark atomic.Pointer[string] // the daemon reads it concurrently
		remark.Store(&written)
		w.up.RemarkInstances(func(instanceID string) string {
			if instanceID == db {
				return *remark.Load()
			}
			return ""
		})
		w.must(w.fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: "raw", Path: "/released.raw"}}))
		pass(time.Minute)
		if r := w.reported(web); !r.Differs || !strings.Contains(r.Note, "/released.raw") {
			t.Errorf("the report is %+v", r)
		}
		if r := w.reported(db); r.Differs || r.Note != written {
			t.Errorf("the report of the other is %+v, want the remark", r)
		}
		if notes := w.up.Notes(); len(notes) != 1 || notes[0].InstanceID != web {
			t.Errorf("notes %+v, want none of an instance that is as it was left", notes)
		}
		remark.Store(new(string))
		pass(time.Minute)
		if r := w.reported(db); r.Note != "" {
			t.Errorf("the report of the other is %+v, want no note any more", r)
		}
	})
}
