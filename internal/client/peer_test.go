// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

// flight is a request with a field of a feature that no program has.
type flight struct {
	Fly bool `json:"fly,omitempty" needs:"flight"`
}

func TestWhatTheOtherSideLacksIsRefusedBeforeItIsSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var got []string
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Volferry-Needs"))
		_, _ = w.Write([]byte(`{"schema_version":1,"version":"v0"}`))
	}))
	c := newClient(t, path)
	if _, known := c.Peer(); known {
		t.Error("what the other side is was known before its first answer")
	}
	err := c.Do(t.Context(), "POST", "/v1/volumes", flight{Fly: true}, nil)
	if api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), "lacks flight") {
		t.Errorf("error = %v, want state_forbidden that names flight", err)
	}
	if err := c.Do(t.Context(), "POST", "/v1/volumes", flight{}, nil); err != nil {
		t.Errorf("a request that needs nothing: %v", err)
	}
	if diff := cmp.Diff([]string{"GET /v1/version ", "POST /v1/volumes "}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestARequestSaysWhatItNeedsAndWhoSendsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var last http.Header
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.Header.Clone()
		w.Header().Set("Volferry-Protocol", "9")
		w.Header().Set("Volferry-Features", strings.Join(append(protocol.Own().Features, "flight"), ", "))
		_, _ = w.Write([]byte(`{"schema_version":1,"version":"v9"}`))
	}))
	c := newClient(t, path)
	if err := c.Do(t.Context(), "POST", "/v1/volumes", flight{Fly: true}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"flight"}, protocol.RequiredBy(last)); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(protocol.Own(), protocol.AnnouncedIn(last)); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if peer, known := c.Peer(); !known || !peer.IsNewer() || len(peer.LacksOfOurs()) > 0 {
		t.Errorf("peer = %+v, %v", peer, known)
	}
}
