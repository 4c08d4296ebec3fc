// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/server"
)

func TestTheTrailHasNoProcessOfALocalDaemon(t *testing.T) {
	for name, c := range map[string]struct {
		uid  uint32
		host string
		want string
	}{
		"the daemon":            {0, "h1", "uid=0(root) gid=0, asked by ann"},
		"root":                  {0, "", "uid=0(root) gid=0 pid=7, asked by ann"},
		"a member of the group": {4242, "h1", "uid=4242 gid=0 pid=7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(httpjson.WithPeer(t.Context(), httpjson.Peer{UID: c.uid, PID: 7}), "POST", "/v1/types", nil)
			r.Header.Set(api.CallerHeader, "ann")
			r.Header.Set(api.HostHeader, c.host)
			if got := server.WhoIs(r); got != c.want {
				t.Errorf("the trail would have %q, want %q", got, c.want)
			}
		})
	}
}

// The daemon of a host is root. Any other process could name a false caller.
func TestTheTrailHasWhoAskedADaemonAndBelievesNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		uid  uint32
		says string
		want bool
	}{
		"root, as a daemon is":      {0, "uid=1000(ann) gid=1000 pid=7", true},
		"a member of the group":     {1000, "uid=0(root) gid=0 pid=1", false},
		"what is not to be printed": {0, "ann\x1b[2J", false},
		"too much":                  {0, strings.Repeat("x", 500), false},
		"nothing":                   {0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctx := httpjson.WithPeer(t.Context(), httpjson.Peer{UID: c.uid})
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/types", strings.NewReader(`{"name":"gold"}`))
			r.Header.Set(api.CallerHeader, c.says)
			s.handler.ServeHTTP(httptest.NewRecorder(), r)
			events := expect.Value(s.store.Trail.Events(t.Context(), 0))(t)
			if len(events) == 0 {
				t.Fatal("there is no event")
			}
			who := events[len(events)-1].Who
			if strings.HasSuffix(who, api.AskedBy+c.says) != c.want || !strings.HasPrefix(who, "uid=") {
				t.Errorf("the trail has %q", who)
			}
		})
	}
}
