// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// settled ends the migration of a filled site, so that its instance is unlocked.
func (s *site) settled(t *testing.T) {
	t.Helper()
	s.ok(t, "POST", "/v1/migrations/"+moveID+"/transition", `{"from":["starting"],"to":"cancelled","op_id":"o2",`+theirs+`}`)
}

// pausing begins a move of volume data with all guests paused.
func (s *site) pausing(t *testing.T) api.Migration {
	t.Helper()
	s.settled(t)
	p := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow","pause_all":true}`)
	status, body := p.answer()
	var doc struct {
		Migration api.Migration   `json:"migration"`
		Op        json.RawMessage `json:"op"`
	}
	decode(t, json.RawMessage(body), &doc)
	if status != 202 || doc.Migration.ID == "" || doc.Op != nil {
		t.Fatalf("answer = %d %s", status, body)
	}
	return doc.Migration
}

func TestTheRegistryItselfMovesWithAllGuestsPaused(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		m := s.pausing(t)
		if m.Method != api.MethodSave || m.State != api.MigrationStarting || m.Phase != "checking" || m.Host != "a" {
			t.Errorf("migration = %+v", m)
		}
		// The loop would call the hosts, and it does not run here.
		if got := append(s.fetch(t, hostID), s.fetch(t, otherID)...); len(got) != 0 {
			t.Errorf("tasks = %+v", got)
		}
		if again := s.begin(t, "POST", "/v1/volumes/data/migrate", "other", `{"to_pool":"slow","pause_all":true}`).code(); again != api.CodeMigrationActive {
			t.Errorf("a second one: %s", again)
		}
		for _, refused := range []struct{ method, path, body string }{
			{"PATCH", "", `{"bandwidth_bytes_per_second":7}`}, {"POST", "/copy", ""}, {"POST", "/complete", ""},
		} {
			if got := s.begin(t, refused.method, "/v1/migrations/"+m.ID+refused.path, "", refused.body).code(); got != api.CodeStateForbidden {
				t.Errorf("%s %s: %s", refused.method, refused.path, got)
			}
		}
		status, body := s.begin(t, "POST", "/v1/migrations/"+m.ID+"/cancel", "", "").answer()
		if status != 202 || !strings.Contains(body, `"state":"cancelling"`) {
			t.Errorf("cancel = %d %s", status, body)
		}
	})
}

// Discarding memory holds for one call only.
func TestMemoryIsGivenUpByTheCallThatSaysSoAndByNoLaterOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		m := s.pausing(t)
		for _, call := range []struct{ body, words string }{
			{`{"discard_memory":true}`, "has no guest whose memory would have to be given up"}, {"", "goes on by itself"},
		} {
			if _, body := s.begin(t, "POST", "/v1/migrations/"+m.ID+"/complete", "", call.body).answer(); !strings.Contains(body, call.words) {
				t.Errorf("complete %s: %s, want %q", call.body, body, call.words)
			}
		}
	})
}

func TestAMoveWithAllGuestsPausedSaysWhomItWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		m := s.pausing(t)
		shown := func() string {
			_, body := s.begin(t, "GET", "/v1/migrations/"+m.ID, "", "").answer()
			return body
		}
		if body := shown(); !strings.Contains(body, `"error":null`) {
			t.Errorf("migration = %s", body)
		}
		pass(time.Minute)
		if body := shown(); !strings.Contains(body, "host a (instance web)") || !strings.Contains(body, string(api.CodeHypervisorUnavailable)) {
			t.Errorf("migration = %s", body)
		}
	})
}

func TestAHostThatIsNotThereRefusesAMoveWithAllGuestsPaused(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.settled(t)
		pass(time.Minute)
		before := s.dump(t)
		if got := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow","pause_all":true}`).code(); got != api.CodeHypervisorUnavailable {
			t.Errorf("code = %s", got)
		}
		if got := s.begin(t, "POST", "/v1/volumes/data/migrate:estimate", "", `{"to_pool":"slow"}`).code(); got != api.CodeHypervisorUnavailable {
			t.Errorf("estimate: code = %s", got)
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("something changed (-before +after):\n%s", diff)
		}
	})
}

// An operator at the socket of a host's daemon has the host's certificate.
func TestAHostHasItsOwnGuestsPausedAndNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.settled(t)
		own, other := speaker{cert: certificate(hostID, "a"), epoch: "1"}, speaker{cert: certificate(otherID, "b"), epoch: "1"}
		const all, plain = `{"to_pool":"slow","pause_all":true}`, `{"to_pool":"slow"}`
		for _, path := range []string{"/v1/volumes/data/migrate", "/v1/volumes/data/migrate:estimate"} {
			wantError(t, s.speak(t, other, "POST", path, all), api.CodeNotYourHost)
		}
		wantError(t, s.speak(t, own, "POST", "/v1/volumes/data/migrate", plain), api.CodeConflict)
		wantError(t, s.speak(t, other, "POST", "/v1/volumes/data/migrate", plain), api.CodeNotYourHost)
		w := s.speak(t, own, "POST", "/v1/volumes/data/migrate", all)
		var doc struct {
			Migration api.Migration `json:"migration"`
		}
		decode(t, w.Body.Bytes(), &doc)
		if m := doc.Migration; w.Code != 202 || m.Method != api.MethodSave {
			t.Fatalf("migrate = %d %s", w.Code, w.Body)
		}
		path := "/v1/migrations/" + doc.Migration.ID
		wantError(t, s.speak(t, other, "POST", path+"/cancel", ""), api.CodeNotYourHost)
		wantError(t, s.speak(t, own, "POST", path+"/complete", ""), api.CodeStateForbidden)
		if w := s.speak(t, own, "POST", path+"/cancel", ""); w.Code != 202 {
			t.Errorf("cancel = %d %s", w.Code, w.Body)
		}
		wantError(t, s.speak(t, own, "POST", "/v1/migrations/"+moveID+"/cancel", ""), api.CodeConflict)
	})
}

// Only hosts know a move from before a restore.
func TestTheEndOfAMigrationThatOnlyHostsKnowWakesItsGuests(t *testing.T) {
	const lost = "/v1/migrations/50000000-0000-4000-8000-000000000070"
	did := func(where, more string) string {
		return `{"instance_id":"` + instanceID + `","instance_name":"web","volume_id":"` + volumeID + `","location":` + location(where) + more + `}`
	}
	for name, tc := range map[string]struct {
		call, saved, want string
	}{
		"cancel, asleep":             {"cancel", did("data", `,"asleep":true`), `"state":"cancelling"`},
		"cancel, asleep elsewhere":   {"cancel", did("dst", `,"asleep":true`), `"code":"needs_operator"`},
		"cancel, awake elsewhere":    {"cancel", did("dst", ""), `"code":"not_found"`},
		"cancel, nobody":             {"cancel", "", `"code":"not_found"`},
		"complete, asleep":           {"complete", did("data", `,"asleep":true`), `"code":"state_forbidden"`},
		"complete, asleep elsewhere": {"complete", did("dst", `,"asleep":true`), `"state":"completing"`},
		"complete, awake elsewhere":  {"complete", did("dst", ""), `"state":"completing"`},
		"complete, nobody":           {"complete", "", `"code":"not_found"`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				s.settled(t)
				p := s.begin(t, "POST", lost+"/"+tc.call, "", "")
				for host, saved := range map[string]string{hostID: tc.saved, otherID: ""} {
					tasks := s.fetch(t, host)
					if len(tasks) != 1 || tasks[0].Method != "GET" || tasks[0].Path != lost+"/saved" {
						t.Fatalf("tasks = %+v", tasks)
					}
					s.reply(t, host, tasks[0].ID, 200, `{"saved_instances":[`+saved+`]}`)
				}
				if _, body := p.answer(); !strings.Contains(body, tc.want) {
					t.Errorf("answer = %s, want %s", body, tc.want)
				}
			})
		})
	}
}

func TestTheEstimateIsMadeOfWhatTheHostsSay(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		seconds float64
	}{
		// 1 GB of RAM is written and read at 100 MB/s; the volume of 1 MiB is negligible.
		"as wished":  {`{"to_pool":"slow","pause_all":true}`, 20.02097152},
		"not read":   {`{"to_pool":"slow","pause_all":true,"verify":"none"}`, 20.01048576},
		"with a cap": {`{"to_pool":"slow","pause_all":true,"verify":"none","bandwidth_bytes_per_second":1048576}`, 21},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				const slowFree = 5 << 20
				s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", strings.Replace(reportOfA, `"path":"/slow","shared":false,"multiattach":false,"active":true,"capacity_bytes":0,"free_bytes":0`,
					`"path":"/slow","shared":false,"multiattach":false,"active":true,"capacity_bytes":10000000,"free_bytes":`+strconv.Itoa(slowFree), 1))
				p := s.begin(t, "POST", "/v1/volumes/data/migrate:estimate", "", tc.body)
				tasks := s.fetch(t, hostID)
				if len(tasks) != 1 || tasks[0].Method != "GET" || tasks[0].Path != "/v1/instances/"+instanceID+"/memory" {
					t.Fatalf("tasks = %+v", tasks)
				}
				s.reply(t, hostID, tasks[0].ID, 200, `{"paused_instance":{"instance_id":"`+instanceID+`","instance_name":"web","host":"a","state":"running","memory_bytes":1000000000,"free_bytes":5}}`)
				status, body := p.answer()
				var doc struct {
					Estimate api.PauseEstimate `json:"estimate"`
				}
				decode(t, json.RawMessage(body), &doc)
				e := doc.Estimate
				if status != 200 || e.CopyBytes != 1<<20 || len(e.Instances) != 1 || e.Instances[0].FreeBytes != 5 || e.DowntimeSeconds < tc.seconds-1e-6 || e.DowntimeSeconds > tc.seconds+1e-6 {
					t.Errorf("estimate = %d %+v, want %f s", status, e, tc.seconds)
				}
				if e.DstFreeBytes == nil || *e.DstFreeBytes != slowFree {
					t.Errorf("free where it goes: %v, want what host a has reported: %d", e.DstFreeBytes, slowFree)
				}
			})
		})
	}
}
