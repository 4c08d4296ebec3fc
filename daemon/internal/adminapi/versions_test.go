// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/protocol"
)

func TestATaskOfANewerRegistryMayHaveFieldsThatThisDaemonDoesNotNeed(t *testing.T) {
	const body = `{"name":"a","size_bytes":0,"fresh":true}`
	task := api.Task{ID: "op", Method: "POST", Path: "/v1/volumes", Body: json.RawMessage(body)}
	for name, tc := range map[string]struct {
		protocol int
		needs    []string
		want     string // of the refusal; the body without a size is read too
	}{
		"newer":                 {protocol.Number + 1, nil, "size_bytes"},
		"newer, and needs more": {protocol.Number + 1, []string{"freshness"}, "lacks freshness"},
		"of this protocol":      {protocol.Number, nil, "unknown field"},
	} {
		task.Protocol, task.Needs = tc.protocol, tc.needs
		a := newServer(t, nowhere, nil).Perform(t.Context(), task)
		if !strings.Contains(string(a.Body), tc.want) {
			t.Errorf("%s: answer = %d %s, want %q", name, a.Status, a.Body, tc.want)
		}
	}
}

// The registry gets the announcement of the caller, and the caller gets the daemon's.
func TestWhatIsPassedOnIsAnnouncedByThoseWhoSpeak(t *testing.T) {
	var got http.Header
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("Volferry-Protocol", "1")
		w.Header().Set("Volferry-Version", "v0")
		_, _ = w.Write([]byte(`{"schema_version":1,"types":[]}`))
	}))
	defer registry.Close()
	base := expect.Value(url.Parse(registry.URL))(t)
	s := newServer(t, nowhere, nil)
	s.RegistryProxy = NewRegistryProxy(http.DefaultTransport, base, "")
	s.CheckRegistry = func(needs []string) error { return protocol.Announcement{Protocol: 1}.Check("the registry", needs) }
	h := s.Handler(everybody)
	ask := func(header map[string]string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/types", strings.NewReader(`{"name":"a"}`))
		for name, value := range header {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	answer := ask(map[string]string{"Volferry-Protocol": "7"})
	if a := protocol.AnnouncedIn(answer.Header()); a.Protocol != protocol.Number || len(answer.Header().Values("Volferry-Protocol")) != 1 {
		t.Errorf("the answer announces %v", answer.Header())
	}
	if protocol.AnnouncedIn(got).Protocol != 7 {
		t.Errorf("the registry is told %v", got)
	}
	ask(nil) // by a person: misspelt fields are refused in this case, too
	if got.Get("Volferry-Protocol") != "" {
		t.Errorf("the registry is told that a person's request is of a program: %v", got)
	}
	got = nil
	w := ask(map[string]string{"Volferry-Protocol": "1", "Volferry-Needs": protocol.Pages})
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the registry is an unknown version and lacks pages") || got != nil {
		t.Errorf("answer = %d %s, and the registry was asked: %v; want a refusal that it was not", w.Code, w.Body, got != nil)
	}
}

func TestStatusSaysWhatTheRegistryLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		peer protocol.Announcement
		want string
	}{
		"the same": {protocol.Own(), "ok registry and daemon are " + protocol.Own().Version},
		"older":    {protocol.Announcement{Version: "v0", Protocol: 1}, "warn the registry is v0, and this daemon " + protocol.Own().Version + "; the registry lacks pages"},
		"newer":    {protocol.Announcement{Version: "v99", Protocol: 99, Features: protocol.Own().Features}, "ok the registry is v99, and this daemon " + protocol.Own().Version + "; it is newer"},
	} {
		checks := VersionsChecks(func() (protocol.Announcement, bool) { return tc.peer, true })
		if got := checks[0].Status + " " + checks[0].Message; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if checks := VersionsChecks(func() (protocol.Announcement, bool) { return protocol.Announcement{}, false }); len(checks) > 0 {
		t.Errorf("before the first answer: %v", checks)
	}
}
