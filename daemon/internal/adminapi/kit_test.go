// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
)

const nowhere = "/nonexistent/registry.sock"

// fenced is the stored state of a host that knows of its fence.
var fenced = memory{"uplink.json": `{"epoch":1,"fence":{"epoch":2}}`}

// remembers returns the stored state of a host with a view that is an hour old.
func remembers() memory {
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	return memory{"registry-view.json": `{"read_at":"` + at + `",
		"hosts":[{"id":"h","name":"alpha"},{"id":"i","name":"beta"}],
		"pools":[{"name":"fast","host":"alpha"},{"name":"fast","host":"beta"},{"name":"slow","host":"beta"}],
		"types":[{"id":"t","name":"default"}], "policies":[{"name":"multiattach"}],
		"volumes":[{"id":"11112222","name":"data"},{"id":"11113333","name":"logs"}],
		"instances":[{"id":"aaaabbbb","name":"web"}],
		"attachments":[{"id":"a1","volume_id":"11112222","instance_id":"aaaabbbb"},{"id":"a2","volume_id":"11113333","instance_id":"other"}]}`}
}

func everybody(*http.Request, httpjson.Route) error { return nil }

// memory is the stored state of the daemon's uplink, by file name.
type memory map[string]string

// newServer returns an API with its registry at the socket.
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
		Guards: hosttest.NewGuards(nil),
	})
	expect.OK(t, err)
	transport, base := registry.Transport()
	return New(Deps{
		Log: slog.New(slog.DiscardHandler), RegistryProxy: NewRegistryProxy(transport, base, socket), RegistryAddress: socket, Uplink: up,
		Audit:       audit.NewOutbox(t.TempDir(), registry.PostEvent, slog.New(slog.DiscardHandler)),
		Attachments: newAttachments(t), HV: hvtest.New(), Version: "1",
	})
}

// newAttachments returns a manager of attachments without ops.
func newAttachments(t *testing.T) *attach.Manager {
	t.Helper()
	records := optest.NewJournal()
	return attach.New(attach.Config{}, attach.Ports{}, optest.NewRunner(records), records, nil, slog.New(slog.DiscardHandler))
}

// ask sends a request to an API without a stored state, with its registry at the socket.
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

// serveRegistry serves h as a registry and returns its socket.
func serveRegistry(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	dir := expect.Value(os.MkdirTemp("", "vf-"))(t) //nolint:usetesting // a socket's path must be short
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "r.sock")
	serveRegistryAt(t, socket, h)
	return socket
}

func serveRegistryAt(t *testing.T, socket string, h http.HandlerFunc) {
	t.Helper()
	registry := httptest.NewUnstartedServer(h)
	expect.OK(t, registry.Listener.Close())
	registry.Listener = expect.Value(new(net.ListenConfig).Listen(t.Context(), "unix", socket))(t)
	registry.Start()
	t.Cleanup(registry.Close)
}

// passedOn answers with 418 and the request that the registry received.
func passedOn(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusTeapot)
	_, _ = fmt.Fprint(w, r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get(api.IdempotencyKeyHeader), " ", string(body))
}

func wantError(t *testing.T, s *Server, method, path string, code api.Code) api.Error {
	t.Helper()
	status, body := askOf(t, s, method, path, "{}")
	e := expect.Refusal([]byte(body))
	if e == nil || e.Code != code || status != code.HTTPStatus() {
		t.Fatalf("%s %s = %d %.200s, want %s", method, path, status, body, code)
	}
	return *e
}
