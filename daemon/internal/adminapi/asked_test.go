// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// An action on a guest through the host's own socket is in the trail with its caller. A refused
// action is not, and a request of the registry's already has an event there.
func TestPowerThatIsAskedForHereIsInTheAuditTrailWithWhoAsked(t *testing.T) {
	s, _ := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped})
	posted := make(chan api.EventPost, 10)
	s.Audit = audit.NewOutbox(t.TempDir(), func(_ context.Context, _ string, e api.EventPost) (api.Event, error) {
		posted <- e
		return api.Event{}, nil
	}, slog.New(slog.DiscardHandler))
	go func() { _ = s.Audit.Run(t.Context()) }()
	askAs := func(verb, body string) int {
		r := httptest.NewRequestWithContext(httpjson.WithPeer(t.Context(), httpjson.Peer{UID: 0, PID: 7}), http.MethodPost, "/v1/instances/web/"+verb, strings.NewReader(body))
		w := httptest.NewRecorder()
		s.Handler(everybody).ServeHTTP(w, r)
		return w.Code
	}
	if a := s.Perform(t.Context(), api.Task{ID: "task", Method: http.MethodPost, Path: "/v1/instances/web/start"}); a.Status != http.StatusAccepted {
		t.Fatalf("the task: %d %s", a.Status, a.Body)
	}
	if status := askAs("unpause", ""); status < 400 {
		t.Fatalf("unpause of a guest that runs: %d", status)
	}
	for _, c := range []struct{ verb, body string }{{"pause", ""}, {"unpause", ""}, {"reboot", ""}, {"stop", `{"force":true}`}, {"start", ""}} {
		if status := askAs(c.verb, c.body); status != http.StatusAccepted {
			t.Fatalf("%s: %d", c.verb, status)
		}
		e := <-posted
		if e.What != "instance."+c.verb || e.Object != "instance/"+web || e.Details["who"] != "uid=0(root) gid=0 pid=7" || e.OpID == "" || e.At.IsZero() {
			t.Errorf("%s: the event is %+v", c.verb, e)
		}
		if force, _ := e.Details["force"].(bool); force != (c.verb == "stop") {
			t.Errorf("%s: force is %v", c.verb, e.Details["force"])
		}
		waitForOp(t, s, e.OpID)
	}
	if len(posted) > 0 {
		t.Errorf("one event more: %+v", <-posted)
	}
}
