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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/op/optest"
	"github.com/volferry/volferry/internal/routes"
)

func everybody(*http.Request, httpjson.Route) error { return nil }

// memory is what the daemon's uplink remembers from before, by file name.
type memory map[string]string

// newServer makes an API whose registry is at the socket.
func newServer(t *testing.T, socket string, m memory) *Server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range m {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	registry := expect.Value(client.NewRegistry(socket))(t)
	t.Cleanup(registry.Close)
	state := expect.Value(uplink.OpenState(dir))(t)
	up, err := uplink.New(uplink.Config{
		HostID: "h", HostName: "alpha", State: state, HV: hvtest.New(), Registry: registry, Log: slog.New(slog.DiscardHandler),
		Guards: guard.New(filepath.Join(dir, "guards"), ""),
	})
	expect.OK(t, err)
	return New(Deps{
		Log: slog.New(slog.DiscardHandler), RegistryProxy: NewRegistryProxy(registry.Transport()), Uplink: up,
		Audit:       audit.NewOutbox(t.TempDir(), registry.PostEvent, slog.New(slog.DiscardHandler)),
		Attachments: newAttachments(t), HV: hvtest.New(), Version: "1",
	})
}

// newAttachments is a manager of attachments with nothing at work.
func newAttachments(t *testing.T) *attach.Manager {
	t.Helper()
	records := optest.NewJournal()
	return attach.New(attach.Config{}, attach.Ports{}, optest.NewRunner(records), records, nil, slog.New(slog.DiscardHandler))
}

// ask sends a request to an API that remembers nothing and whose registry is at
// the socket.
func ask(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	return askOf(t, newServer(t, socket, nil), method, path, body)
}

func askOf(t *testing.T, s *Server, method, path, body string) (int, string) {
	t.Helper()
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
	socket := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get(api.IdempotencyKeyHeader)+" "+string(body))
	})
	for _, c := range [][3]string{{http.MethodPatch, "/v1/types/fast", `{"name":"a"}`}, {http.MethodGet, "/v1/events?since=3", ""}} {
		status, body := ask(t, socket, c[0], c[1], c[2])
		if want := c[0] + " " + c[1] + "  " + c[2]; status != http.StatusTeapot || body != want {
			t.Errorf("got %d %q, want %d %q", status, body, http.StatusTeapot, want)
		}
	}
}

// serveRegistry serves h as a registry and returns its socket.
func serveRegistry(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	dir := expect.Value(os.MkdirTemp("", "vf-"))(t) //nolint:usetesting // a socket's path must be short
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "r.sock")
	l := expect.Value(new(net.ListenConfig).Listen(t.Context(), "unix", socket))(t)
	registry := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: h}
	go func() { _ = registry.Serve(l) }()
	t.Cleanup(func() { _ = registry.Close() })
	return socket
}

// headerTimeout is of no consequence here; a server without one is a mistake.
const headerTimeout = 1 << 30

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
		status, body := ask(t, "/nonexistent", c.method, c.path, c.body)
		if status != http.StatusBadRequest || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: got %d %s, want 400 that says %q", c.method, c.path, c.body, status, body, c.says)
		}
	}
}
