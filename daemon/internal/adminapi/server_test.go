// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func everybody(*http.Request, httpjson.Route) error { return nil }

// ask sends a request to an API whose registry is at the socket.
func ask(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	s := New(Deps{Log: slog.New(slog.DiscardHandler), RegistryProxy: NewRegistryProxy(socket), Version: "1"})
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	s.Handler(everybody).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestEveryRouteIsInTheOpenAPIDocument(t *testing.T) {
	status, body := ask(t, "/nonexistent", http.MethodGet, "/v1/openapi.json", "")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
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
		if want := r.Method != http.MethodGet; want != (r.Access == httpjson.Operate) {
			t.Errorf("%s %s asks for %s", r.Method, r.Path, r.Access)
		}
		if r.Summary == "" {
			t.Errorf("%s %s has no summary", r.Method, r.Path)
		}
	}
}

func TestARegistryThatIsAwayIsSaidToBe(t *testing.T) {
	status, body := ask(t, "/nonexistent/registry.sock", http.MethodGet, "/v1/volumes", "")
	var e api.ErrorBody
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Fatalf("answer %q (%v)", body, err)
	}
	if status != http.StatusServiceUnavailable || e.Error.Code != api.CodeRegistryUnavailable {
		t.Errorf("status %d, code %s; want 503, registry_unavailable", status, e.Error.Code)
	}
}

func TestWhatTheRegistryAnswersIsPassedOnAsItIs(t *testing.T) {
	dir, err := os.MkdirTemp("", "vf-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "r.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	registry := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get(api.IdempotencyKeyHeader)+" "+string(body))
	})}
	go func() { _ = registry.Serve(l) }()
	t.Cleanup(func() { _ = registry.Close() })
	status, body := ask(t, socket, http.MethodPatch, "/v1/types/fast?x=1", `{"name":"a"}`)
	if want := `PATCH /v1/types/fast?x=1  {"name":"a"}`; status != http.StatusTeapot || body != want {
		t.Errorf("got %d %q, want %d %q", status, body, http.StatusTeapot, want)
	}
}

// headerTimeout is of no consequence here; a server without one is a mistake.
const headerTimeout = 1 << 30

func TestRequestsThatMakeNoSenseAreRefusedBeforeAnythingIsAsked(t *testing.T) {
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":"a","colour":"red"}`, "colour"},
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":`, "ends"},
		{"POST", "/v1/volumes/v/migrate", ``, "empty"},
		{"POST", "/v1/volumes/v/migrate", `{"to_pool":7}`, "to_pool"},
		{"POST", "/v1/attachments/a/migration:complete", `{}`, "dst_attachment_id"},
		{"POST", "/v1/instances:adopt", `{}`, "say which"},
		{"POST", "/v1/instances:adopt", `{"domain":"a","all":true}`, "say which"},
		{"PATCH", "/v1/migrations/m", `{}`, "nothing to change"},
		{"GET", "/v1/migrations?colour=red", ``, "colour"},
	} {
		status, body := ask(t, "/nonexistent", c.method, c.path, c.body)
		if status != http.StatusBadRequest || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: got %d %s, want 400 that says %q", c.method, c.path, c.body, status, body, c.says)
		}
	}
}
