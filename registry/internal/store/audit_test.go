// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

func postWith(t *testing.T, s *Store, call Call, details map[string]any) error {
	t.Helper()
	return second(s.Trail.Post(t.Context(), call, api.EventPost{What: "note", Object: "host/" + hostA, Details: details}))
}

func TestAPostedEventCannotPassForWhatTheRegistrySaw(t *testing.T) {
	s := newSite(t)
	e := must(s.Trail.Post(t.Context(), as(hostA, 1), api.EventPost{
		At: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), What: "host.fence", Object: "host/" + hostB, To: api.HostFenced,
		Details: map[string]any{"evidence": "seen it", "at": "then"},
	}))(t)
	said, _ := e.Details["posted"].(map[string]any)
	if e.What != "posted.host.fence" || e.Host != "a" || time.Since(e.At) > time.Minute || e.Details["at"] != "2020-01-01T00:00:00Z" || said["evidence"] != "seen it" {
		t.Errorf("event = %+v", e)
	}
}

func TestTheDetailsOfAPostedEventAreSmall(t *testing.T) {
	s := newSite(t)
	if err := postWith(t, s, as(hostA, 1), map[string]any{"text": strings.Repeat("x", 4000)}); err != nil {
		t.Error(err)
	}
	wantCode(t, postWith(t, s, as(hostA, 1), map[string]any{"text": strings.Repeat("x", 4<<10)}), api.CodeInvalidArgument, "details have")
}

func TestAHostPostsAFewEventsAtATimeAndAnotherHostIsNotKeptFromIt(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	for range postsAtOnce {
		if err := postWith(t, s, as(hostA, 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, postWith(t, s, as(hostA, 1), nil), api.CodeRegistryUnavailable, "try again later")
	if err := postWith(t, s, as(hostB, 1), nil); err != nil {
		t.Errorf("another host: %v", err)
	}
	now = now.Add(postEvery)
	if err := postWith(t, s, as(hostA, 1), nil); err != nil {
		t.Errorf("later: %v", err)
	}
}

func TestRefusalsOfOneCallerDoNotFillTheTrail(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	refused := api.Errorf(api.CodePermissionDenied, "no: %s", "\x1b[2J"+strings.Repeat("x", 1<<16))
	audit := func(caller string, pid int) {
		t.Helper()
		if err := s.Trail.AuditRefusal(t.Context(), Call{Who: fmt.Sprint(caller, " pid=", pid), Caller: caller}, "host.fence", "host/\x1b[2J", refused); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Marks.Now().Seq
	for pid := range 10 * refusalsAtOnce {
		audit("uid=7", pid)
	}
	if n := s.Marks.Now().Seq - before; n != refusalsAtOnce {
		t.Errorf("%d refusals were audited, want %d", n, refusalsAtOnce)
	}
	audit("uid=8", 1)
	if e := lastEvent(t, s); !strings.HasPrefix(e.Who, "uid=8") || strings.Contains(fmt.Sprintf("%+v", e), "\x1b") || len(fmt.Sprint(e.Details["error"])) > 2*maxRefusal {
		t.Errorf("event = %+v", e)
	}
	now = now.Add(refusalEvery)
	audit("uid=7", 1)
	if e := lastEvent(t, s); fmt.Sprint(e.Details["refusals_not_recorded"]) != fmt.Sprint(9*refusalsAtOnce) {
		t.Errorf("event = %+v", e)
	}
}
