// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

func TestEveryRouteIsInTheOpenAPIDocument(t *testing.T) {
	status, body := ask(t, nowhere, http.MethodGet, "/v1/openapi.json", "")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	expect.OK(t, json.Unmarshal([]byte(body), &doc))
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("the document is OpenAPI %q", doc.OpenAPI)
	}
	for _, r := range New(Deps{}).Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not in the document", r.Method, r.Path)
		}
	}
}

func TestEveryRouteThatChangesSomethingAsksForMoreThanReading(t *testing.T) {
	for _, r := range New(Deps{}).Routes() {
		if want := r.Method != http.MethodGet; want != (r.Access != httpjson.Read) {
			t.Errorf("%s %s asks for %s", r.Method, r.Path, r.Access)
		}
		if r.Summary == "" {
			t.Errorf("%s %s has no summary", r.Method, r.Path)
		}
	}
}

func TestTheDaemonServesTheRoutesThatAreDeclaredForItAndNoOther(t *testing.T) {
	var declared, served []string
	for _, d := range routes.All() {
		if d.Daemon != nil {
			declared = append(declared, d.String())
		}
	}
	for _, r := range New(Deps{}).Routes() {
		served = append(served, r.Method+" "+r.Path)
	}
	slices.Sort(declared)
	slices.Sort(served)
	if diff := cmp.Diff(declared, served); diff != "" {
		t.Errorf("routes (-declared +served):\n%s", diff)
	}
}

func TestARegistryThatIsAwayIsSaidToBe(t *testing.T) {
	status, body := ask(t, nowhere, http.MethodGet, "/v1/volumes", "")
	if e := expect.Refusal([]byte(body)); e == nil || e.Code != api.CodeRegistryUnavailable || status != http.StatusServiceUnavailable {
		t.Errorf("answer %d %s; want 503, registry_unavailable", status, body)
	}
}

func TestWhatTheRegistryAnswersIsPassedOnAsItIs(t *testing.T) {
	socket := serveRegistry(t, passedOn)
	for _, c := range [][3]string{{http.MethodPatch, "/v1/types/fast", `{"name":"a"}`}, {http.MethodGet, "/v1/events?since=3", ""}} {
		status, body := ask(t, socket, c[0], c[1], c[2])
		if want := c[0] + " " + c[1] + "  " + c[2]; status != http.StatusTeapot || body != want {
			t.Errorf("got %d %q, want %d %q", status, body, http.StatusTeapot, want)
		}
	}
}

func TestRequestsThatMakeNoSenseAreRefusedBeforeAnythingIsAsked(t *testing.T) {
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":"a","colour":"red"}`, "colour"},
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":`, "ends"},
		{"POST", "/v1/volumes/v/migrate", ``, "to_pool"},
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":7}`, "to_pool"},
		{"POST", "/v1/attachments/a/migration:complete", `{}`, "dst_attachment_id"},
		{"POST", "/v1/volumes/v/attach", `{"instance":"i","colour":"red"}`, "colour"},
		{"POST", "/v1/volumes/v/detach", ``, "empty"},
		{"DELETE", "/v1/attachments/a?force=maybe", ``, "force"},
		{"DELETE", "/v1/volumes/v?colour=red", ``, "colour"},
		{"POST", "/v1/instances:adopt", `{}`, "say which"},
		{"POST", "/v1/instances:adopt", `{"domain":"a","all":true}`, "say which"},
		{"PATCH", "/v1/migrations/m", `{}`, "nothing to change"},
		{"GET", "/v1/migrations?colour=red", ``, "colour"},
		{"GET", "/v1/ops?colour=red", ``, "colour"},
		{"GET", "/v1/volumes/v?all=1", ``, "all"},
		{"POST", "/v1/volumes/v/migrate?dry_run=1", `{"to_pool":"a"}`, "dry_run"},
	} {
		status, body := ask(t, nowhere, c.method, c.path, c.body)
		if status != http.StatusBadRequest || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: got %d %s, want 400 that says %q", c.method, c.path, c.body, status, body, c.says)
		}
	}
}
