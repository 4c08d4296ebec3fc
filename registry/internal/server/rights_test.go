// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// The right that a route requires from a host to change or read a volume.
const (
	takesCare      = "care"      // it has the volume in its care, or was asked to delete it
	takesGuest     = "guest"     // one of its instances has the volume; or no host has, and it has the volume in its care or was asked to change it
	takesBegun     = "begun"     // it began the work that this ends
	takesReach     = "reach"     // it has the shared pool of an unheld volume
	takesAllGuests = "guests"    // it has all instances with the volume
	takesInstance  = "instance"  // it owns the instance
	takesMigration = "migration" // it owns the migration, or has one of its instances
	takesItself    = "itself"    // the request is about itself
	takesNothing   = "nothing"   // the request is about no host
)

// takes has every route that a host may call.
var takes = map[string]string{
	"GET /v1/status":       takesNothing,
	"GET /v1/version":      takesNothing,
	"GET /v1/openapi.json": takesNothing,
	"GET /v1/types":        takesNothing,
	"GET /v1/types/{type}": takesNothing,
	"GET /v1/policies":     takesNothing,
	"POST /v1/events":      takesItself,

	"GET /v1/hosts":                             takesItself,
	"GET /v1/hosts/{host}":                      takesItself,
	"POST /v1/hosts/{host}/report":              takesItself,
	"POST /v1/hosts/{host}/rejoin":              takesItself,
	"GET /v1/hosts/{host}/tasks":                takesItself,
	"POST /v1/hosts/{host}/tasks/{task}/answer": takesItself,
	"GET /v1/pools":                             takesItself,
	"GET /v1/pools/{pool}":                      takesItself,

	"GET /v1/volumes":                            takesReach,
	"GET /v1/volumes/{volume}":                   takesReach,
	"POST /v1/volumes:register":                  takesItself,
	"PATCH /v1/volumes/{volume}":                 takesCare,
	"POST /v1/volumes/{volume}/transition":       takesCare,
	"POST /v1/volumes/{volume}/forget":           takesCare,
	"POST /v1/volumes/{volume}/grow":             takesGuest,
	"POST /v1/volumes/{volume}/identify":         takesGuest,
	"POST /v1/volumes/{volume}/resize:begin":     takesGuest,
	"POST /v1/volumes/{volume}/resize:end":       takesBegun,
	"POST /v1/volumes/{volume}/attach":           takesReach,
	"POST /v1/volumes/{volume}/detach":           takesInstance,
	"POST /v1/volumes/{volume}/migrate":          takesAllGuests,
	"POST /v1/volumes/{volume}/migrate:estimate": takesAllGuests,

	"GET /v1/attachments":                          takesInstance,
	"GET /v1/attachments/{attachment}":             takesInstance,
	"POST /v1/attachments":                         takesReach,
	"POST /v1/attachments/{attachment}/transition": takesInstance,
	"POST /v1/attachments/{attachment}/release":    takesInstance,
	"DELETE /v1/attachments/{attachment}":          takesInstance,

	"GET /v1/instances":                        takesInstance,
	"GET /v1/instances/{instance}":             takesInstance,
	"POST /v1/instances:register":              takesItself,
	"DELETE /v1/instances/{instance}":          takesInstance,
	"POST /v1/instances/{instance}/transition": takesInstance,
	"POST /v1/instances/{instance}/lock":       takesInstance,
	"POST /v1/instances/{instance}/unlock":     takesInstance,

	"GET /v1/migrations":                         takesMigration,
	"GET /v1/migrations/{migration}":             takesMigration,
	"GET /v1/migrations/{migration}/events":      takesMigration,
	"POST /v1/migrations:register":               takesReach,
	"POST /v1/migrations/{migration}/transition": takesMigration,
	"POST /v1/migrations/{migration}/permit":     takesMigration,
	"POST /v1/migrations/{migration}/complete":   takesMigration,
	"POST /v1/migrations/{migration}/cancel":     takesMigration,
}

func TestTheTableOfWhatRoutesTakeOfAHostIsComplete(t *testing.T) {
	visited := map[string]bool{}
	for _, route := range newSite(t).server.Routes() {
		name := route.Method + " " + route.Path
		visited[name] = true
		if may, listed := route.Hosts != httpjson.HostNever, takes[name] != ""; may != listed {
			t.Errorf("%s: hosts may call it: %t; it is in the table: %t", name, may, listed)
		}
	}
	for name := range takes {
		if !visited[name] {
			t.Errorf("%s is in the table, and is no route", name)
		}
	}
}

// sharedSite has volumes in a pool of hosts a and b, all in the care of a: free is unattached,
// guest is at an instance of b, elsewhere at an instance of a, and a is resizing the fourth.
type sharedSite struct {
	*site
	free, guest, elsewhere, resizing string
}

const sharedOp = "op-of-a"

func newSharedSite(t *testing.T) sharedSite {
	t.Helper()
	s := sharedSite{site: newSite(t)}
	ctx, nobody := t.Context(), store.Call{}
	pool := `"pools":[{"name":"nfs","type":"netfs","path":"/nfs","shared":true,"multiattach":true,"active":true,"capacity_bytes":0,"free_bytes":0}]`
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", strings.Replace(report, `"pools":[]`, pool, 1))
	s.ok(t, "POST", "/v1/hosts/"+otherID+"/report", strings.Replace(reportOfB, `"pools":[]`, pool, 1))
	for n, v := range []struct {
		id   *string
		name string
	}{{&s.free, "free"}, {&s.guest, "guest"}, {&s.elsewhere, "elsewhere"}, {&s.resizing, "resizing"}} {
		*v.id = storetest.ID(storetest.VolumeKind, n+1)
		expect.Value(s.store.Volumes.Register(ctx, nobody, api.VolumeRegister{ID: *v.id, Name: v.name, Status: api.VolumeAvailable, Host: "a", Location: storetest.At("/nfs/" + v.name)}))(t)
	}
	for n, at := range []struct{ host, volume string }{{"a", s.elsewhere}, {"b", s.guest}} {
		instance, attachment := storetest.ID(storetest.InstanceKind, n+1), storetest.ID(storetest.AttachmentKind, n+1)
		expect.Value(s.store.Instances.Register(ctx, nobody, api.InstanceRegister{ID: instance, Name: "on-" + at.host, Host: at.host, State: api.InstanceRunning}))(t)
		expect.Value(s.store.Attachments.Reserve(ctx, nobody, api.AttachmentReserve{
			ID: attachment, VolumeID: at.volume, InstanceID: instance, Device: "vdb", Mode: api.ModeRW, Generation: 1, Host: at.host, Epoch: 1,
		}))(t)
		for _, step := range [][]api.AttachmentState{{api.AttachmentReserved, api.AttachmentAttaching}, {api.AttachmentAttaching, api.AttachmentAttached}} {
			expect.Value(s.store.Attachments.Transition(ctx, nobody, attachment, api.AttachmentTransition{Host: at.host, Epoch: 1, From: step[:1], To: step[1]}))(t)
		}
	}
	expect.Value(s.store.Volumes.BeginResize(ctx, nobody, s.resizing, api.VolumeResizeBegin{Host: "a", Epoch: 1, Generation: 1, OpID: sharedOp}))(t)
	return s
}

// requestsOfB has a request of host b for each route about a volume.
func requestsOfB(volume, place string) map[string]string {
	size := storetest.At("/nfs/x").SizeBytes
	const as = `"host":"b","epoch":1,"op_id":"` + sharedOp + `"`
	return map[string]string{
		"PATCH /v1/volumes/{volume}":             `{"name":"other"}`,
		"POST /v1/volumes/{volume}/transition":   `{"from":"available","to":"deleting"}`,
		"POST /v1/volumes/{volume}/forget":       `{}`,
		"POST /v1/volumes/{volume}/grow":         fmt.Sprintf(`{"from_bytes":%d,"size_bytes":%d}`, size, int64(1)<<60),
		"POST /v1/volumes/{volume}/identify":     `{"path":"/nfs/` + place + `","identity":"naa.6001405aa"}`,
		"POST /v1/volumes/{volume}/resize:begin": `{"generation":1,` + as + `}`,
		"POST /v1/volumes/{volume}/resize:end":   `{` + as + `,"size_bytes":1152921504606846976}`,
		"POST /v1/attachments": `{"id":"` + newID + `","volume_id":"` + volume + `","instance_id":"` + storetest.ID(storetest.InstanceKind, 2) +
			`","device":"vdc","mode":"rw","generation":1,` + as + `}`,
		"POST /v1/migrations:register": fmt.Sprintf(`{"id":"`+newID+`","volume_id":"`+volume+`",`+as+`,"generation":1,"method":"offline","dst":{"path":"/other","format":"raw","size_bytes":%d}}`, size),
	}
}

// A host reaches all volumes in its shared pools, but reach gives no right to change their
// properties.
func TestAHostChangesAnothersVolumeOnlyByTheRightThatTheRouteTakes(t *testing.T) {
	for name := range requestsOfB("", "") {
		t.Run(name, func(t *testing.T) {
			for scene, may := range map[string][]string{
				"free":      {takesReach},
				"elsewhere": {},
				"resizing":  {},
				"guest":     {takesGuest},
				"asked":     {takesGuest, takesReach},
			} {
				s := newSharedSite(t)
				volume := map[string]string{"free": s.free, "guest": s.guest, "elsewhere": s.elsewhere, "resizing": s.resizing, "asked": s.free}[scene]
				place := scene
				if scene == "asked" {
					place = "free"
					s.take(t, "POST", "/v1/volumes/"+volume+"/attach")
				}
				body := requestsOfB(volume, place)[name]
				method, path, _ := strings.Cut(strings.ReplaceAll(name, "{volume}", volume), " ")
				before := fmt.Sprint(s.dump(t))
				w := s.speak(t, speaker{cert: certificate(otherID, "b"), epoch: "1"}, method, path, body)
				if got, want := before != fmt.Sprint(s.dump(t)), slices.Contains(may, takes[name]); got != want {
					t.Errorf("%s: changed something: %t, want %t: %d %s", scene, got, want, w.Code, w.Body)
				}
			}
		})
	}
}

func TestTheHostThatWasAskedToDeleteAVolumeMayForgetIt(t *testing.T) {
	s := newSharedSite(t)
	s.take(t, http.MethodDelete, "/v1/volumes/"+s.free)
	as := speaker{cert: certificate(otherID, "b"), epoch: "1"}
	if w := s.speak(t, as, http.MethodPost, "/v1/volumes/"+s.free+"/forget", "{}"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// take makes host b take a task.
func (s *site) take(t *testing.T, method, path string) {
	t.Helper()
	task, _, err := s.store.Tasks.Create(t.Context(), store.Call{}, api.Task{ID: "task-of-b", Host: "b", Who: "x", Method: method, Path: path}, workflow.TaskRequest{})
	expect.OK(t, err)
	as := speaker{cert: certificate(otherID, "b"), epoch: "1"}
	if w := s.speak(t, as, http.MethodGet, "/v1/hosts/"+otherID+"/tasks?session=s&wait_seconds=1", ""); !strings.Contains(w.Body.String(), task.ID) {
		t.Fatalf("host b was not given the task: %d %s", w.Code, w.Body)
	}
}
