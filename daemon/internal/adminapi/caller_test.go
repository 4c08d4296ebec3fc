// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

func TestWhoAsksForAChangeIsInTheLogAndWhoReadsIsNot(t *testing.T) {
	s, _ := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped})
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	const group = -1
	ask := func(uid uint32, method, path string) string {
		log.Reset()
		r := httptest.NewRequestWithContext(httpjson.WithPeer(t.Context(), httpjson.Peer{UID: uid, PID: 7}), method, path, strings.NewReader("{}"))
		s.Handler(httpjson.SocketAuthorizer(group)).ServeHTTP(httptest.NewRecorder(), r)
		return log.String()
	}
	const path = "/v1/instances/web/shelve"
	if got := ask(0, http.MethodPost, path); !strings.Contains(got, "a change was asked for") || !strings.Contains(got, path) || !strings.Contains(got, "uid=0(root) gid=0 pid=7") {
		t.Errorf("root asks, and the log is %q", got)
	}
	if got := ask(4321, http.MethodPost, path); !strings.Contains(got, "refused") || !strings.Contains(got, "uid=4321") {
		t.Errorf("somebody is refused, and the log is %q", got)
	}
	for path, method := range map[string]string{"/v1/status": http.MethodGet, "/v1/volumes/web/migrate:plan": http.MethodPost, "/v1/volumes/web/migrate:estimate": http.MethodPost} {
		if got := ask(0, method, path); strings.Contains(got, "asked for") {
			t.Errorf("what changes nothing is in the log: %q", got)
		}
	}
}
