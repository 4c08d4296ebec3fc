// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/volferry/volferry/internal/api"
)

func TestMalformedRequestsChangeNothing(t *testing.T) {
	s := newSite(t)
	before := s.trail(t)
	for name, tc := range map[string]struct{ method, path, body string }{
		"unknown field":       {"POST", "/v1/volumes:register", strings.Replace(volume, `"bootable"`, `"colour":"red","bootable"`, 1)},
		"2 MiB body":          {"POST", "/v1/volumes:register", strings.Replace(volume, `"data"`, `"`+strings.Repeat("x", 2<<20)+`"`, 1)},
		"negative size":       {"POST", "/v1/volumes:register", strings.Replace(volume, "1048576", "-1048576", 1)},
		"size as text":        {"POST", "/v1/volumes:register", strings.Replace(volume, "1048576", `"1GiB"`, 1)},
		"control characters":  {"POST", "/v1/volumes:register", strings.Replace(volume, `"data"`, `"da\u0000ta\u001b"`, 1)},
		"10,000 characters":   {"POST", "/v1/volumes:register", strings.Replace(volume, `"data"`, `"`+strings.Repeat("x", 10_000)+`"`, 1)},
		"trailing data":       {"POST", "/v1/volumes:register", volume + volume},
		"no body":             {"POST", "/v1/volumes:register", ""},
		"unknown parameter":   {"POST", "/v1/volumes:register?force=1", volume},
		"other host's path":   {"POST", "/v1/hosts/b/report", report},
		"negative since":      {"GET", "/v1/events?since=-1", ""},
		"follow maybe":        {"GET", "/v1/events?follow=maybe", ""},
		"the last none":       {"GET", "/v1/events?last=0", ""},
		"more than one page":  {"GET", "/v1/events?last=1001", ""},
		"follow the last":     {"GET", "/v1/events?follow=1&last=5", ""},
		"all of them":         {"GET", "/v1/migrations?all=ja", ""},
		"unknown filter":      {"GET", "/v1/volumes?name=x", ""},
		"no session":          {"GET", "/v1/hosts/" + hostID + "/tasks", ""},
		"negative wait":       {"GET", "/v1/hosts/" + hostID + "/tasks?session=s&wait_seconds=-1", ""},
		"endless wait":        {"GET", "/v1/hosts/" + hostID + "/tasks?session=s&wait_seconds=301", ""},
		"status of no answer": {"POST", "/v1/hosts/" + hostID + "/tasks/t/answer", `{"status":100,"body":null}`},
		"body where none is":  {"POST", "/v1/migrations/m/copy", `{"x":1}`},
		"relayed nonsense":    {"POST", "/v1/volumes", `{"name":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, s.do(t, tc.method, tc.path, tc.body), api.CodeInvalidArgument)
			if diff := cmp.Diff(before, s.trail(t)); diff != "" {
				t.Errorf("something changed (-before +after):\n%s", diff)
			}
		})
	}
	s.ok(t, "POST", "/v1/volumes:register", volume)
	if s.trail(t) == before {
		t.Error("a good request changed nothing: this test could not fail")
	}
}

// bodiless has the calls without a body.
var bodiless = map[string]bool{
	"/v1/attachments/{attachment}/migration:copy": true, "/v1/attachments/{attachment}/migration:cancel": true,
	"/v1/migrations/{migration}/copy": true,
	"/v1/instances/{instance}/unlock": true, "/v1/instances/{instance}/start": true, "/v1/instances/{instance}/reboot": true,
	"/v1/instances/{instance}/pause": true, "/v1/instances/{instance}/unpause": true,
	"/v1/migrations/{migration}/delete-source": true,
	"/v1/drains/{drain}/pause":                 true, "/v1/drains/{drain}/resume": true, "/v1/drains/{drain}/stop": true,
}

func TestEveryRouteIsInTheOpenAPIDocument(t *testing.T) {
	s := newSite(t)
	w := s.do(t, "GET", "/v1/openapi.json", "")
	var document struct {
		OpenAPI    string                                `json:"openapi"`
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || document.OpenAPI != "3.1.0" {
		t.Fatalf("document %s: %v", document.OpenAPI, err)
	}
	operations := 0
	for _, methods := range document.Paths {
		operations += len(methods)
	}
	routes := s.server.Routes()
	if operations != len(routes) {
		t.Errorf("operations = %d, routes = %d", operations, len(routes))
	}
	for _, route := range routes {
		operation := string(document.Paths[route.Path][strings.ToLower(route.Method)])
		if mutates := route.Method != http.MethodGet && route.Method != http.MethodDelete; mutates && !bodiless[route.Path] != (route.In != nil) {
			t.Errorf("%s %s: does the document tell of its body? %t", route.Method, route.Path, route.In != nil)
		}
		if route.Out == nil && route.Lines == nil && route.Path != "/v1/openapi.json" {
			t.Errorf("%s %s: the document does not tell of its answer", route.Method, route.Path)
		}
		if route.Summary == "" || !strings.Contains(operation, route.Summary) || !strings.Contains(operation, "#/components/responses/Error") {
			t.Errorf("%s %s is %q in the document", route.Method, route.Path, operation)
		}
		for _, name := range route.Query {
			if !strings.Contains(operation, fmt.Sprintf("%q", name)) {
				t.Errorf("%s %s does not tell of its parameter %s", route.Method, route.Path, name)
			}
		}
	}
	for _, ref := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
		if document.Components.Schemas[ref[1]] == nil {
			t.Errorf("the document refers to the schema %s, which it does not have", ref[1])
		}
	}
	for _, code := range api.Codes() {
		if !strings.Contains(string(document.Components.Schemas["Error"]), fmt.Sprintf("%q", code)) {
			t.Errorf("the error schema does not have %s", code)
		}
	}
}

func TestEveryThingIsShownByNameAndListed(t *testing.T) {
	s := newSite(t)
	s.ok(t, "POST", "/v1/volumes:register", volume)
	for _, path := range []string{"/v1/hosts/a", "/v1/types/default", "/v1/policies", "/v1/volumes/data", "/v1/volumes/" + volumeID[:8], "/v1/version", "/v1/status"} {
		s.ok(t, "GET", path, "")
	}
	for path, want := range map[string]int{
		"/v1/hosts": 1, "/v1/pools": 0, "/v1/types": 1, "/v1/volumes": 1, "/v1/instances": 0,
		"/v1/attachments?volume=data": 0, "/v1/migrations?all=1": 0, "/v1/events?since=1": 1, "/v1/events?last=1": 1, "/v1/events?since=1&last=5": 1, "/v1/drains": 0,
	} {
		var list []json.RawMessage
		if raw := s.ok(t, "GET", path, ""); json.Unmarshal(raw, &list) != nil || list == nil || len(list) != want {
			t.Errorf("GET %s = %s, want a list of %d", path, raw, want)
		}
	}
	for _, path := range []string{"/v1/hosts/x", "/v1/pools/x", "/v1/types/x", "/v1/volumes/x", "/v1/instances/x", "/v1/attachments/x", "/v1/migrations/x", "/v1/drains/x", "/v1/ops/x", "/v1/volumes/x/which"} {
		wantError(t, s.do(t, "GET", path, ""), api.CodeNotFound)
	}
}

func TestMetricsTellWhatHappened(t *testing.T) {
	s := newSite(t)
	s.ok(t, "POST", "/v1/volumes:register", volume)
	s.do(t, "GET", "/v1/volumes/x", "")
	want := `
# HELP volferry_build_info 1, for the version of this program.
# TYPE volferry_build_info gauge
volferry_build_info{version="1.2.3"} 1
# HELP volferry_registry_hosts Hosts by status.
# TYPE volferry_registry_hosts gauge
volferry_registry_hosts{status="fenced"} 0
volferry_registry_hosts{status="suspect"} 0
volferry_registry_hosts{status="up"} 1
# HELP volferry_registry_locks Volumes that a migration holds.
# TYPE volferry_registry_locks gauge
volferry_registry_locks 0
# HELP volferry_registry_read_only 1 while the registry takes no changes because its database was restored from a backup, else 0.
# TYPE volferry_registry_read_only gauge
volferry_registry_read_only 0
`
	if err := testutil.GatherAndCompare(s.metrics.Registry, strings.NewReader(want),
		"volferry_build_info", "volferry_registry_hosts", "volferry_registry_locks", "volferry_registry_read_only", "volferry_registry_audit_trail_intact"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]int{
		"volferry_registry_commit_seconds": 1, "volferry_registry_commit_batch_size": 1,
		"volferry_registry_request_seconds": 3, // report, create, and the 404
	} {
		if got, err := testutil.GatherAndCount(s.metrics.Registry, name); err != nil || got != want {
			t.Errorf("series of %s = %d (%v), want %d", name, got, err, want)
		}
	}
}
