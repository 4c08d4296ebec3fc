// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// flight is a body with a field of a feature that hosts do not have yet.
type flight struct {
	Fly bool `json:"fly,omitempty" needs:"flight"`
}

func TestAHostIsNotAskedForWhatItsDaemonLacks(t *testing.T) {
	for _, changes := range []bool{true, false} {
		bubble(t, func(t *testing.T, s *site) {
			req := change("k")
			if !changes {
				req = read()
			}
			req, err := req.With(flight{Fly: true})
			if err != nil {
				t.Fatal(err)
			}
			s.fetch(t, hostA, "s1", 0)
			s.Announced(hostA, protocol.Announcement{Protocol: 1})
			status, body, err := s.Do(t.Context(), req)
			if refused := relay.Refusal(status, body); err != nil || refused == nil || refused.Code != api.CodeStateForbidden || !strings.Contains(refused.Message, "host a is an unknown version and lacks flight") {
				t.Errorf("answer = %d %s, %v; want state_forbidden that names flight", status, body, err)
			}
			if len(s.tasks.rows) > 0 {
				t.Errorf("a task was made: %v", s.tasks.rows)
			}
			s.Announced(hostA, protocol.Announcement{Protocol: 9, Features: []string{"flight"}})
			done := s.begin(t.Context(), req)
			tasks, err := s.Fetch(t.Context(), store.Call{}, hostA, "s1", time.Minute, admitted)
			if err != nil || len(tasks) != 1 || !slices.Equal(tasks[0].Needs, []string{"flight"}) {
				t.Fatalf("tasks of a host that has it = %+v, %v", tasks, err)
			}
			s.reply(t, tasks[0].ID, `{}`)
			want(t, "answer", (<-done).String(), "200 {} after 0s")
		})
	}
}

func TestAHostIsAskedToWaitForTheEndOfAnOp(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		req := change("k").Op()
		req.Wait = 15 * time.Second
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), req)
		tasks, err := s.Fetch(t.Context(), store.Call{}, hostA, "s1", time.Minute, admitted)
		if err != nil || len(tasks) != 1 || tasks[0].Path != "/v1/ops/k?wait=15s" {
			t.Fatalf("tasks = %+v, %v; want one with the time", tasks, err)
		}
		s.reply(t, tasks[0].ID, `{}`)
		<-done
	})
}
