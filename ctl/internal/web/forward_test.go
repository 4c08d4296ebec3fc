// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// The permitted reads are listed here, not computed.
func TestOnlyTheseReadsReachTheOtherSide(t *testing.T) {
	want := []string{
		"GET /v1/doctor", "GET /v1/drains", "GET /v1/events", "GET /v1/hosts", "GET /v1/instances", "GET /v1/migrations",
		"GET /v1/migrations/{migration}", "GET /v1/ops", "GET /v1/pools", "GET /v1/status", "GET /v1/volumes",
	}
	s := openSite(t)
	passed := map[string]bool{}
	for _, d := range routes.All() {
		refs := strings.Count(d.Path, "{")
		path := d.PathOf(slices.Repeat([]string{"x"}, refs)...)
		before := len(s.requests())
		resp := s.ask(t, d.Method, path)
		switch after := len(s.requests()); {
		case after > before:
			passed[d.String()] = true
		case resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed:
			t.Errorf("%s is answered with %s", d, resp.Status)
		}
	}
	var got []string
	for route := range passed {
		got = append(got, route)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes that reach the other side (-want +got):\n%s", diff)
	}
}

func TestOtherMethodsThanGetReachNothing(t *testing.T) {
	s := openSite(t)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND"} {
		for _, path := range []string{"/", openPath, "/about", "/v1/status", "/v1/events", "/v1/volumes", "/v1/hosts/h1/fence", "/v1/migrations/m1"} {
			resp := s.ask(t, method, path, "X-HTTP-Method-Override: POST")
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
				t.Errorf("%s %s is answered with %s, Allow: %s", method, path, resp.Status, resp.Header.Get("Allow"))
			}
		}
	}
	if n := len(s.requests()); n > 0 {
		t.Errorf("%d requests reached the other side", n)
	}
}

func TestOtherSideSeesPathAndQueryAndNothingElseOfTheBrowser(t *testing.T) {
	s := openSite(t)
	resp := s.ask(t, "GET", "/v1/migrations?all=1", "Volferry-Host: h1", "Volferry-Epoch: 9", "Idempotency-Key: k", "Authorization: Basic x", "Origin: "+s.page.URL, "Forwarded: for=me", "Volferry-Version: v0")
	if resp.StatusCode != http.StatusTeapot || len(resp.Cookies()) > 0 || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("answer: %s %v", resp.Status, resp.Header)
	}
	r := s.requests()[0]
	if got := r.Method + " " + r.URL.RequestURI(); got != "GET /v1/migrations?all=1" {
		t.Errorf("the other side sees %s", got)
	}
	if diff := cmp.Diff(protocol.Own(), protocol.AnnouncedIn(r.Header)); diff != "" {
		t.Errorf("the other side is told of another program (-want +got):\n%s", diff)
	}
	for name := range r.Header {
		if !slices.Contains([]string{"User-Agent", "Accept-Encoding", "Volferry-Version", "Volferry-Protocol", "Volferry-Features"}, name) {
			t.Errorf("the other side sees %s: %s", name, r.Header.Get(name))
		}
	}
}

func TestNameInAPathStaysOneName(t *testing.T) {
	s := openSite(t)
	for _, name := range []string{"..%2Fhosts", "m%3Fall=1", "%2e%2e", "a%20b"} {
		s.ask(t, "GET", "/v1/migrations/"+name)
	}
	for _, r := range s.requests() {
		if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/migrations/"); !ok || strings.Contains(rest, "/") || r.URL.RawQuery != "" {
			t.Errorf("the other side is asked for %s", r.URL.RequestURI())
		}
	}
}

func TestLinesOfAStreamComeOneByOne(t *testing.T) {
	s := openSite(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.page.URL+"/v1/events?follow=1&since=7", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.browser.Do(r) // the header arrives before any line
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{`{"seq":8}`, `{"seq":9}`} {
		s.lines <- want
		if got, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("line %q, %v; want %s", got, err, want)
		}
	}
	if got := s.requests()[0].URL.RequestURI(); got != "/v1/events?follow=1&since=7" {
		t.Errorf("the other side was asked for %s", got)
	}
	_ = resp.Body.Close()
	<-s.ended // when the browser disconnects, so does the page's server
}

func TestOtherSideThatIsAwayIsToldInTheWordsOfTheAPI(t *testing.T) {
	s := openSite(t)
	s.otherSide.Close()
	status, body := get(t, s.browser, s.page.URL+"/v1/status")
	var doc api.ErrorBody
	if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.Error == nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if status != http.StatusBadGateway || !strings.Contains(doc.Error.Message, "there is no such socket") {
		t.Errorf("%d %s", status, body)
	}
}
