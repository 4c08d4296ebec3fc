// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// A person who asks the wrong side never gets a bare HTTP error.
func TestEveryCallThatOnlyTheRegistryAnswersIsRefusedWithItsAddress(t *testing.T) {
	s := newServer(t, nowhere, nil)
	n := 0
	for _, d := range routes.All() {
		if d.Daemon != nil || slices.ContainsFunc(s.Routes(), func(r httpjson.Route) bool { return r.Method+" "+r.Path == d.String() }) {
			continue
		}
		n++
		path := d.PathOf(slices.Repeat([]string{"x"}, strings.Count(d.Path, "{"))...)
		_, body := askOf(t, s, d.Method, path, "")
		e := expect.Refusal([]byte(body))
		if e == nil || e.Details[api.DetailRegistry] != nowhere || !strings.Contains(e.Message, "only the registry does this") {
			t.Errorf("%s is answered with %s", d, body)
		}
	}
	if n == 0 {
		t.Error("every call of the registry is one of the daemon: nothing was tried")
	}
}

func TestEveryCallOfOperatorsIsAnsweredOrPassedOnByTheDaemon(t *testing.T) {
	for _, d := range routes.All() {
		if d.Registry != nil && d.Access != httpjson.Local && d.Daemon == nil && d.Path != routes.ShowDaemonVersion.Path {
			t.Errorf("%s is no call of the daemon", d)
		}
	}
}

func TestTheRegistryIsToldWhoAskedAndNotWhatTheCallerSaysOfItself(t *testing.T) {
	heard := ""
	socket := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		heard = strings.Join(r.Header.Values(api.CallerHeader), " and ")
		httpjson.WriteError(w, api.Errorf(api.CodeConflict, "no"))
	})
	s := newServer(t, socket, nil)
	r := httptest.NewRequestWithContext(httpjson.WithPeer(t.Context(), httpjson.Peer{UID: 4242, GID: 7, PID: 99}), http.MethodPost, "/v1/types", strings.NewReader(`{"name":"gold"}`))
	r.Header.Set(api.CallerHeader, "somebody else")
	s.Handler(everybody).ServeHTTP(httptest.NewRecorder(), r)
	if heard != "uid=4242 gid=7 pid=99" {
		t.Errorf("the registry was told of %q", heard)
	}
}

func TestARefusalOfTheRegistryThatIsAboutWhoAsksGetsItsAddress(t *testing.T) {
	socket := serveRegistry(t, func(w http.ResponseWriter, _ *http.Request) {
		httpjson.WriteError(w, api.Errorf(api.CodePermissionDenied, "it is for operators").With("kept", true))
	})
	status, body := ask(t, socket, http.MethodDelete, "/v1/hosts/hv3?volumes=1", "")
	e := expect.Refusal([]byte(body))
	if e == nil || status != http.StatusForbidden || e.Message != "it is for operators" || e.Details[api.DetailRegistry] != socket || e.Details["kept"] != true {
		t.Errorf("got %d %s", status, body)
	}
}
