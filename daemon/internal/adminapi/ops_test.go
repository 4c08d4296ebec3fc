// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// newDisobedient returns an API with a guest that was asked to shut down, and does not.
func newDisobedient(t *testing.T) *Server {
	t.Helper()
	s, fake := newLifecycle(t, api.Instance{Host: "alpha", State: api.InstanceStopped})
	if status, body := askOf(t, s, http.MethodPost, "/v1/instances/web/start", ""); status != http.StatusAccepted {
		t.Fatalf("start: %d %s", status, body)
	}
	for ops := open(t, s); len(ops) > 0; ops = open(t, s) {
		waitForOp(t, s, ops[0].ID)
	}
	expect.OK(t, fake.SetShutdown(web, hvtest.ShutdownIgnores))
	if status, body := askOf(t, s, http.MethodPost, "/v1/instances/web/stop", `{}`); status != http.StatusAccepted {
		t.Fatalf("stop: %d %s", status, body)
	}
	return s
}

// The op waits for the guest: until its end it is in the list of open ops, with its subject.
func TestOpenOpsAreListedUntilTheyAreOver(t *testing.T) {
	s := newDisobedient(t)
	ops := open(t, s)
	if len(ops) != 1 {
		t.Fatalf("%d ops are open, want the stop: %+v", len(ops), ops)
	}
	if o := ops[0]; o.Kind != "instance_stop" || o.Subject != "instance web" || o.State != "running" || o.CreatedAt.IsZero() || time.Since(o.CreatedAt) > time.Minute {
		t.Errorf("the op is %+v", o)
	}
}

func TestAnOpThatIsNotThereIsRefusedWithTheWayToThoseThatAre(t *testing.T) {
	e := wantError(t, newDisobedient(t), http.MethodGet, "/v1/ops/nope", api.CodeNotFound)
	if want := "there is no operation \"nope\" on this host; `volferryctl op list` shows those of a host that are not finished"; e.Message != want {
		t.Errorf("got %q, want %q", e.Message, want)
	}
}

func open(t *testing.T, s *Server) []api.Op {
	t.Helper()
	status, body := askOf(t, s, http.MethodGet, "/v1/ops", "")
	var answer struct{ Ops []api.Op }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s (%v)", status, body, err)
	}
	return answer.Ops
}
