// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// request is a request of a route about an object of host a. nobodys is the reason why the request
// of a route with own access is about no host's object.
type request struct{ path, body, nobodys string }

// requests has a request for every route.
func requests(drainID string) map[string]request {
	const op = `"op_id":"o"`
	host, volume, attachment := "/v1/hosts/"+hostID, "/v1/volumes/"+volumeID, "/v1/attachments/"+attachedID
	migration, instance, drain := "/v1/migrations/"+moveID, "/v1/instances/"+instanceID, "/v1/drains/"+drainID
	return map[string]request{
		"GET /v1/status":                            {path: "/v1/status"},
		"GET /v1/version":                           {path: "/v1/version"},
		"GET /v1/openapi.json":                      {path: "/v1/openapi.json"},
		"GET /v1/hosts":                             {path: "/v1/hosts"},
		"GET /v1/hosts/{host}":                      {path: host},
		"POST /v1/hosts/{host}/report":              {path: host + "/report", body: reportOfA},
		"POST /v1/hosts/{host}/fence":               {path: host + "/fence", body: `{"evidence":"its power is off","even_if_up":true}`},
		"DELETE /v1/hosts/{host}":                   {path: host},
		"POST /v1/hosts/{host}/rejoin":              {path: host + "/rejoin", body: `{"epoch":1}`},
		"GET /v1/hosts/{host}/tasks":                {path: host + "/tasks?session=s"},
		"POST /v1/hosts/{host}/tasks/{task}/answer": {path: host + "/tasks/" + taskOfA + "/answer", body: `{"status":200,"body":{}}`},

		"GET /v1/pools":                  {path: "/v1/pools"},
		"GET /v1/pools/{pool}":           {path: "/v1/pools/fast?host=a"},
		"POST /v1/pools/{pool}/drain":    {path: "/v1/pools/slow/drain", body: `{"to_pool":"fast"}`},
		"GET /v1/types":                  {path: "/v1/types"},
		"POST /v1/types":                 {path: "/v1/types", body: `{"name":"silver"}`},
		"GET /v1/types/{type}":           {path: "/v1/types/gold"},
		"PATCH /v1/types/{type}":         {path: "/v1/types/gold", body: `{"name":"lead"}`},
		"DELETE /v1/types/{type}":        {path: "/v1/types/gold"},
		"GET /v1/policies":               {path: "/v1/policies"},
		"PUT /v1/policies/{policy}":      {path: "/v1/policies/multiattach", body: `{"enabled":false}`},
		"GET /v1/events":                 {path: "/v1/events"},
		"POST /v1/events":                {path: "/v1/events", body: `{"at":"2026-01-01T00:00:00Z","what":"note","object":"x"}`, nobodys: "an event is of who posts it"},
		"GET /v1/ops":                    {path: "/v1/ops?host=a"},
		"GET /v1/ops/{op}":               {path: "/v1/ops/" + taskOfA},
		"GET /v1/ops/{op}/events":        {path: "/v1/ops/" + taskOfA + "/events"},
		"GET /v1/drains":                 {path: "/v1/drains"},
		"GET /v1/drains/{drain}":         {path: drain},
		"GET /v1/drains/{drain}/events":  {path: drain + "/events"},
		"POST /v1/drains/{drain}/pause":  {path: drain + "/pause"},
		"POST /v1/drains/{drain}/resume": {path: drain + "/resume"},
		"POST /v1/drains/{drain}/stop":   {path: drain + "/stop"},

		"GET /v1/volumes":                            {path: "/v1/volumes"},
		"POST /v1/volumes":                           {path: "/v1/volumes?host=a", body: `{"name":"new","size_bytes":1048576}`},
		"POST /v1/volumes:adopt":                     {path: "/v1/volumes:adopt?host=a", body: `{"name":"new","path":"/x","format":"raw"}`},
		"POST /v1/volumes:register":                  {path: "/v1/volumes:register", body: `{"id":"` + newID + `","name":"new","status":"available","type":"","bootable":false,"host":"a","location":` + location("new") + `}`},
		"GET /v1/volumes/{volume}":                   {path: volume},
		"PATCH /v1/volumes/{volume}":                 {path: volume, body: `{"name":"other"}`},
		"DELETE /v1/volumes/{volume}":                {path: volume},
		"POST /v1/volumes/{volume}/transition":       {path: "/v1/volumes/" + freeID + "/transition", body: `{"from":"available","to":"deleting"}`},
		"POST /v1/volumes/{volume}/grow":             {path: "/v1/volumes/" + freeID + "/grow", body: `{"from_bytes":1048576,"size_bytes":2097152}`},
		"POST /v1/volumes/{volume}/identify":         {path: "/v1/volumes/" + freeID + "/identify", body: `{"path":"/nfs/free","identity":"naa.6001405aa"}`},
		"POST /v1/volumes/{volume}/resize":           {path: volume + "/resize", body: `{"size_bytes":2097152}`},
		"POST /v1/volumes/{volume}/resize:begin":     {path: "/v1/volumes/" + freeID + "/resize:begin", body: `{"generation":1,` + op + `,` + theirs + `}`},
		"POST /v1/volumes/{volume}/resize:end":       {path: "/v1/volumes/" + freeID + "/resize:end", body: `{` + op + `,` + theirs + `}`},
		"POST /v1/volumes/{volume}/forget":           {path: "/v1/volumes/" + freeID + "/forget", body: `{}`},
		"POST /v1/volumes/{volume}/attach":           {path: volume + "/attach", body: `{"instance":"web"}`},
		"POST /v1/volumes/{volume}/detach":           {path: volume + "/detach", body: `{"instance":"web"}`},
		"POST /v1/volumes/{volume}/migrate":          {path: volume + "/migrate", body: `{"to_pool":"slow"}`},
		"POST /v1/volumes/{volume}/migrate:plan":     {path: volume + "/migrate:plan", body: `{"to_pool":"slow"}`},
		"POST /v1/volumes/{volume}/migrate:estimate": {path: volume + "/migrate:estimate", body: `{"to_pool":"slow"}`},
		"POST /v1/volumes/{volume}/retype":           {path: "/v1/volumes/" + freeID + "/retype", body: `{"type":"gold"}`},
		"POST /v1/volumes/{volume}/retype:plan":      {path: "/v1/volumes/" + freeID + "/retype:plan", body: `{"type":"gold"}`},
		"POST /v1/volumes/{volume}/size":             {path: "/v1/volumes/" + freeID + "/size", body: `{"size_bytes":1048576,"evidence":"looked"}`},
		"GET /v1/volumes/{volume}/which":             {path: volume + "/which"},

		"GET /v1/attachments":                                  {path: "/v1/attachments"},
		"POST /v1/attachments":                                 {path: "/v1/attachments", body: `{"id":"` + newID + `","volume_id":"` + freeID + `","instance_id":"` + instanceID + `","device":"vdc","mode":"rw","generation":1,` + op + `,` + theirs + `}`},
		"GET /v1/attachments/{attachment}":                     {path: attachment},
		"POST /v1/attachments/{attachment}/transition":         {path: attachment + "/transition", body: `{"from":["attached"],"to":"error",` + op + `,` + theirs + `}`},
		"POST /v1/attachments/{attachment}/release":            {path: attachment + "/release", body: `{"force":true,` + op + `,` + theirs + `}`},
		"DELETE /v1/attachments/{attachment}":                  {path: attachment + "?force=1"},
		"POST /v1/attachments/{attachment}/migration:start":    {path: attachment + "/migration:start", body: `{"to_pool":"slow"}`},
		"POST /v1/attachments/{attachment}/migration:copy":     {path: attachment + "/migration:copy"},
		"POST /v1/attachments/{attachment}/migration:complete": {path: attachment + "/migration:complete", body: `{"dst_attachment_id":"` + dstID + `"}`},
		"POST /v1/attachments/{attachment}/migration:cancel":   {path: attachment + "/migration:cancel"},

		"GET /v1/instances":                        {path: "/v1/instances"},
		"POST /v1/instances:register":              {path: "/v1/instances:register", body: `{"id":"` + newID + `","name":"new","host":"a","state":"running","disks":[],"slots":[]}`},
		"POST /v1/instances:adopt":                 {path: "/v1/instances:adopt?host=a", body: `{"domain":"db"}`},
		"GET /v1/instances/{instance}":             {path: instance},
		"DELETE /v1/instances/{instance}":          {path: instance},
		"POST /v1/instances/{instance}/transition": {path: instance + "/transition", body: `{"from":"stopped","to":"shelved","definition":{"domain":"<domain/>"},` + op + `,` + theirs + `}`},
		"POST /v1/instances/{instance}/lock":       {path: instance + "/lock", body: `{"reason":"audit"}`},
		"POST /v1/instances/{instance}/unlock":     {path: instance + "/unlock"},
		"POST /v1/instances/{instance}/start":      {path: instance + "/start"},
		"POST /v1/instances/{instance}/stop":       {path: instance + "/stop", body: `{"force":true}`},
		"POST /v1/instances/{instance}/reboot":     {path: instance + "/reboot"},
		"POST /v1/instances/{instance}/repair":     {path: instance + "/repair"},
		"POST /v1/instances/{instance}/pause":      {path: instance + "/pause"},
		"POST /v1/instances/{instance}/unpause":    {path: instance + "/unpause"},
		"POST /v1/instances/{instance}/shelve":     {path: instance + "/shelve", body: `{"keep_on_host":true}`},
		"POST /v1/instances/{instance}/unshelve":   {path: instance + "/unshelve", body: `{}`},

		"GET /v1/migrations":                            {path: "/v1/migrations"},
		"POST /v1/migrations:register":                  {path: "/v1/migrations:register", body: `{"id":"` + newID + `","volume_id":"` + freeID + `",` + theirs + `,"generation":1,"method":"offline",` + op + `,"dst":{"path":"/slow/free","format":"raw","size_bytes":1048576}}`},
		"GET /v1/migrations/{migration}":                {path: migration},
		"GET /v1/migrations/{migration}/events":         {path: migration + "/events"},
		"PATCH /v1/migrations/{migration}":              {path: migration, body: `{"bandwidth_bytes_per_second":1}`},
		"POST /v1/migrations/{migration}/transition":    {path: migration + "/transition", body: `{"from":["starting"],"to":"started",` + op + `,` + theirs + `}`},
		"POST /v1/migrations/{migration}/permit":        {path: migration + "/permit", body: `{"instance_id":"` + instanceID + `","to":"resume",` + theirs + `}`},
		"GET /v1/migrations:released":                   {path: "/v1/migrations:released?host=a"},
		"POST /v1/migrations/{migration}/delete-source": {path: migration + "/delete-source"},
		"POST /v1/migrations/{migration}/copy":          {path: migration + "/copy"},
		"POST /v1/migrations/{migration}/complete":      {path: migration + "/complete"},
		"POST /v1/migrations/{migration}/cancel":        {path: migration + "/cancel"},
		"POST /v1/migrations/{migration}/abandon":       {path: migration + "/abandon", body: `{"keep":"src","reason":"gone"}`},
	}
}

// How a request can end. An allowed request may still be refused for its content.
const (
	allowed  = "allowed"
	denied   = "permission_denied"
	notYours = "not_your_host"
	leftOut  = "allowed, and sees nothing of another's"
	noWay    = "no connection"
)

// answerTo returns the expected end for a caller.
func answerTo(who string, route httpjson.Route, req request) string {
	roles := map[string]httpjson.Access{"operator read": httpjson.Read, "operator operate": httpjson.Operate, "operator fence": httpjson.Fence}
	switch who {
	case "no certificate", "revoked", "expired":
		return noWay
	case "Unix root":
		return allowed
	case "Unix stranger":
		return allowedIf(route.Access == httpjson.Read)
	case "own host":
		return allowedIf(route.Hosts != httpjson.HostNever)
	case "other host":
		switch {
		case route.Hosts == httpjson.HostNever:
			return denied
		case route.Hosts == httpjson.HostAny || req.nobodys != "":
			return allowed
		case route.Method == http.MethodGet && !strings.Contains(route.Path, "{"):
			return leftOut
		}
		return notYours
	}
	return allowedIf(roles[who] >= route.Access)
}

func allowedIf(yes bool) string {
	if yes {
		return allowed
	}
	return denied
}

// ended returns the actual end of a request.
func ended(a answer, err error, want string) string {
	switch {
	case err != nil:
		return noWay
	case a.code == api.CodePermissionDenied:
		return denied
	case a.code == api.CodeNotYourHost:
		return notYours
	case a.status >= 500 && a.code != api.CodeHypervisorUnavailable:
		return fmt.Sprintf("%d %s", a.status, a.body)
	case want == leftOut && a.status == http.StatusOK && !showsHostA(a.body):
		return leftOut
	}
	return allowed
}

func showsHostA(body string) bool {
	return slices.ContainsFunc([]string{hostID, `"a"`, instanceID, volumeID, freeID, movingID, attachedID, movedID, moveID}, func(id string) bool {
		return strings.Contains(body, id)
	})
}

// Try every route with every caller, over real connections. Callers without the right come first,
// and must not change anything.
func TestEveryRouteLetsInWhomItsTableSays(t *testing.T) {
	certs := newAuthority(t)
	visited := map[string]bool{}
	for _, route := range newSite(t).server.Routes() {
		name := route.Method + " " + route.Path
		visited[name] = true
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			req, ok := requests(s.fill(t))[name]
			if !ok {
				t.Fatal("this route has no case: add one to requests")
			}
			callers := certs.open(t, s)
			var may []string
			before := s.dump(t)
			for who, c := range callers {
				want := answerTo(who, route, req)
				if want == allowed || want == leftOut {
					may = append(may, who)
					continue
				}
				a, err := c.ask(t, route.Method, req.path, req.body)
				if got := ended(a, err, want); got != want {
					t.Errorf("%s: got %s, want %s; %d %s", who, got, want, a.status, a.body)
				}
			}
			if diff := cmp.Diff(before, s.dump(t)); diff != "" {
				t.Errorf("those who may not changed something (-before +after):\n%s", diff)
			}
			slices.Sort(may) // operators and hosts before Unix root
			for _, who := range may {
				want := answerTo(who, route, req)
				a, err := callers[who].ask(t, route.Method, req.path, req.body)
				if got := ended(a, err, want); got != want {
					t.Errorf("%s: got %s (%v), want %s; %d %s", who, got, err, want, a.status, a.body)
				}
			}
		})
	}
	for name := range requests("") {
		if !visited[name] {
			t.Errorf("there is a case for %s, which is no route", name)
		}
	}
}
