// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	idleID = "20000000-0000-4000-8000-000000000009"
	// rootID is the root volume of idle, rootAtID its attachment.
	rootID   = "30000000-0000-4000-8000-000000000009"
	rootAtID = "40000000-0000-4000-8000-000000000009"
)

func shelfStep(from, to, rest string) string {
	return `{"from":"` + from + `","to":"` + to + `",` + theirs + `,"op_id":"shelve"` + rest + `}`
}

// shelve makes an instance idle on host a, and shelves and offloads it.
func (s *site) shelve(t *testing.T) {
	t.Helper()
	s.ok(t, "POST", "/v1/instances:register", `{"id":"`+idleID+`","name":"idle","host":"a","state":"stopped","slots":[],"disks":[{"volume_id":"`+rootID+`",
		"volume_name":"root","attachment_id":"`+rootAtID+`","device":"vda","boot_index":0,"mode":"rw","location":`+location("root")+`}]}`)
	for _, step := range []string{
		shelfStep("stopped", "shelved", `,"definition":{"domain":"<domain/>","nvram":"AAEC","disks":{"vda":{"disk":"<disk/>","serial_of_volume":true}}}`),
		shelfStep("shelved", "shelved_offloaded", ""),
	} {
		if w := s.do(t, "POST", "/v1/instances/idle/transition", step); w.Code != 200 {
			t.Fatalf("%s = %d %s", step, w.Code, w.Body)
		}
	}
}

func TestTheAnswerToATransitionIsAShelvedInstance(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.shelve(t)
		w := s.do(t, "POST", "/v1/instances/idle/transition", shelfStep("shelved_offloaded", "shelved", ""))
		// Decode it like the client decodes an answer of several nouns.
		var got api.ShelvedInstance
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("claim = %d %s", w.Code, w.Body)
		}
		if got.Instance.ID != idleID || got.Instance.Host != "a" || got.Definition == nil || got.Definition.Domain != "<domain/>" ||
			string(got.Definition.NVRAM) != "\x00\x01\x02" || got.Definition.Disks["vda"].Disk != "<disk/>" || len(got.Attachments) != 1 {
			t.Errorf("claimed %s", w.Body)
		}
		w = s.do(t, "POST", "/v1/instances/idle/transition", shelfStep("shelved", "stopped", ""))
		if body := w.Body.String(); w.Code != 200 || strings.Contains(body, "definition") || !strings.Contains(body, `"attachments":[{`) {
			t.Errorf("completed %s", body)
		}
	})
}

// The registry itself attaches and detaches volumes of an instance without a host: the answer has
// an attachment and no op.
func TestVolumesOfAnInstanceThatNoHostHasAreTheRegistrys(t *testing.T) {
	for name, ask := range map[string]func(*testing.T, *site, string, string, string) *httptest.ResponseRecorder{
		"operator": func(t *testing.T, s *site, method, path, body string) *httptest.ResponseRecorder {
			return s.do(t, method, path, body)
		},
		"last host": func(t *testing.T, s *site, method, path, body string) *httptest.ResponseRecorder {
			return s.speak(t, local(hostID), method, path, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				s.shelve(t)
				step := func(method, path, body string) (a api.Attachment) {
					t.Helper()
					w := ask(t, s, method, path, body)
					var answer struct {
						Op         *api.Op        `json:"op"`
						Attachment api.Attachment `json:"attachment"`
					}
					if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Op != nil || answer.Attachment.ID == "" {
						t.Fatalf("%s %s = %d %s", method, path, w.Code, w.Body)
					}
					return answer.Attachment
				}
				if a := step("POST", "/v1/volumes/root/detach", `{"instance":"idle"}`); a.ID != rootAtID {
					t.Errorf("detached %+v", a)
				}
				a := step("POST", "/v1/volumes/free/attach", `{"instance":"idle","root":true}`)
				if a.Device != "vda" || a.State != api.AttachmentAttached || a.Host != "" {
					t.Errorf("attached %+v", a)
				}
				step("DELETE", "/v1/attachments/"+a.ID, "")
				a = step("POST", "/v1/volumes/free/attach", `{"instance":"idle"}`)
				step("DELETE", "/v1/attachments/"+a.ID+"?force=1", "")
				if tasks := s.fetch(t, hostID); len(tasks) != 0 {
					t.Errorf("a host was asked: %+v", tasks)
				}
			})
		})
	}
}

func TestAHostMayNotHaveTheRegistryTouchWhatAHostHas(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.shelve(t)
		for name, tc := range map[string]struct {
			host, method, path, body string
			code                     api.Code
		}{
			"attach to its own":         {hostID, "POST", "/v1/volumes/free/attach", `{"instance":"web"}`, api.CodeConflict},
			"detach from its own":       {hostID, "POST", "/v1/volumes/data/detach", `{"instance":"web"}`, api.CodeConflict},
			"delete of its own":         {hostID, "DELETE", "/v1/attachments/" + attachedID + "?force=1", "", api.CodeConflict},
			"attach to another's":       {otherID, "POST", "/v1/volumes/free/attach", `{"instance":"web"}`, api.CodeNotYourHost},
			"attach to another's shelf": {otherID, "POST", "/v1/volumes/free/attach", `{"instance":"idle"}`, api.CodeNotYourHost},
			"delete of another's shelf": {otherID, "DELETE", "/v1/attachments/" + rootAtID, "", api.CodeNotYourHost},
			"delete of none":            {hostID, "DELETE", "/v1/attachments/" + newID, "", api.CodeNotFound},
		} {
			wantError(t, s.speak(t, local(tc.host), tc.method, tc.path, tc.body), tc.code)
			if t.Failed() {
				t.Fatal(name)
			}
		}
		if tasks := s.fetch(t, hostID); len(tasks) != 0 {
			t.Errorf("a host was asked: %+v", tasks)
		}
	})
}

// The same key gets the same answer, even if a host has the instance now.
func TestARepeatedShelvedAttachIsNotPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.shelve(t)
		const body = `{"instance":"idle"}`
		first := fmt.Sprint(s.begin(t, "POST", "/v1/volumes/free/attach", "k", body).answer())
		for _, step := range []string{shelfStep("shelved_offloaded", "shelved", ""), shelfStep("shelved", "stopped", "")} {
			s.do(t, "POST", "/v1/instances/idle/transition", step)
		}
		if again := fmt.Sprint(s.begin(t, "POST", "/v1/volumes/free/attach", "k", body).answer()); again != first || !strings.HasPrefix(first, "200") {
			t.Errorf("again: %s, first: %s", again, first)
		}
		if tasks := s.fetch(t, hostID); len(tasks) != 0 {
			t.Errorf("a host was asked: %+v", tasks)
		}
	})
}

// A key that was passed to a host goes there again, even if no host has the instance now.
func TestARepeatedAttachGoesWhereItWentBeforeTheShelve(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "POST", "/v1/volumes/free/attach", "k", `{"instance":"web"}`)
		s.fetch(t, hostID)
		s.reply(t, hostID, "k", 202, `{"schema_version":1}`)
		first := fmt.Sprint(p.answer())
		s.shelve(t)
		if again := fmt.Sprint(s.begin(t, "POST", "/v1/volumes/free/attach", "k", `{"instance":"web"}`).answer()); again != first {
			t.Errorf("again: %s, first: %s", again, first)
		}
		if got := s.begin(t, "POST", "/v1/volumes/free/attach", "k", `{"instance":"idle"}`).code(); got != api.CodeIdempotencyMismatch {
			t.Errorf("another instance: code = %s", got)
		}
	})
}

func TestWhatNeedsAHostIsRefusedWhereNoneHasTheInstance(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.shelve(t)
		before := s.dump(t)
		for _, verb := range []string{"start", "stop", "reboot", "pause", "unpause", "repair", "shelve"} {
			body := map[string]string{"stop": "{}", "shelve": "{}"}[verb]
			if got := s.begin(t, "POST", "/v1/instances/idle/"+verb, "", body).code(); got != api.CodeStateForbidden {
				t.Errorf("%s: code = %s", verb, got)
			}
		}
		at := fmt.Sprint(s.begin(t, "POST", "/v1/attachments/"+rootAtID+"/migration:start", "", `{"to_pool":"slow"}`).answer())
		if !strings.Contains(at, string(api.CodeStateForbidden)) || !strings.Contains(at, "move the volume with `volferryctl volume migrate root`") {
			t.Errorf("a move at the attachment: %s", at)
		}
		if got := s.begin(t, "DELETE", "/v1/volumes/root", "k", "").code(); got != api.CodeVolumeInUse {
			t.Errorf("delete: code = %s", got)
		}
		if fmt.Sprint(before) != fmt.Sprint(s.dump(t)) {
			t.Error("something changed")
		}
	})
}

// Its last host reaches the volume and the pool, so it is asked, as for an unattached volume. A
// pool that only the other host has is out of reach.
func TestAVolumeOfAShelvedInstanceIsMovedByAHostThatReachesBothPools(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.shelve(t)
		wide := `"pools":[{"name":"wide","type":"dir","path":"/wide","shared":false,"multiattach":false,"active":true,"capacity_bytes":0,"free_bytes":0}]`
		s.ok(t, "POST", "/v1/hosts/"+otherID+"/report", strings.NewReplacer(`"pools":[]`, wide, `"epoch":0`, `"epoch":1`).Replace(reportOfB))
		if got := s.begin(t, "POST", "/v1/volumes/root/migrate", "", `{"to_pool":"wide"}`).code(); got != api.CodeUnsupportedDisk {
			t.Errorf("out of reach: code = %s", got)
		}
		s.begin(t, "POST", "/v1/volumes/root/migrate", "k", `{"to_pool":"slow"}`)
		if tasks := s.fetch(t, hostID); len(tasks) != 1 || tasks[0].Path != "/v1/volumes/"+rootID+"/migrate" || tasks[0].ID != "k" {
			t.Errorf("tasks of host a = %+v", tasks)
		}
		if tasks := s.fetch(t, otherID); len(tasks) != 0 {
			t.Errorf("tasks of host b = %+v", tasks)
		}
	})
}

func TestAnInstanceIsUnshelvedWhereItWasAskedForOrCanBe(t *testing.T) {
	// Host b reaches none of its volumes, so it goes there without volumes.
	bare := func(t *testing.T, s *site) {
		t.Helper()
		s.ok(t, "POST", "/v1/instances:register", `{"id":"`+newID+`","name":"bare","host":"a","state":"stopped","slots":[],"disks":[]}`)
		for _, step := range []string{shelfStep("stopped", "shelved", `,"definition":{"domain":"<domain/>"}`), shelfStep("shelved", "shelved_offloaded", "")} {
			s.do(t, "POST", "/v1/instances/bare/transition", step)
		}
	}
	for name, tc := range map[string]struct {
		instance, body string
		away           bool // host a is away
		host           string
		code           api.Code
	}{
		"its last host":             {"bare", `{}`, false, "a", ""},
		"the host that is named":    {"bare", `{"host":"b"}`, false, "b", ""},
		"named by its id":           {"bare", `{"host":"` + otherID + `"}`, false, "b", ""},
		"another, as that is away":  {"bare", `{}`, true, "b", ""},
		"named and away":            {"bare", `{"host":"a"}`, true, "", api.CodeHypervisorUnavailable},
		"nobody else reaches it":    {"idle", `{}`, true, "", api.CodeHypervisorUnavailable},
		"named and out of reach":    {"idle", `{"host":"b"}`, false, "", api.CodeUnsupportedDisk},
		"named and not known":       {"idle", `{"host":"c"}`, false, "", api.CodeNotFound},
		"it runs":                   {"web", `{}`, false, "", api.CodeStateForbidden},
		"there is no such instance": {"none", `{}`, false, "", api.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				s.shelve(t)
				bare(t, s)
				if tc.away {
					pass(time.Minute)
					s.fetch(t, otherID)
				}
				before := s.dump(t)
				path := "/v1/instances/" + tc.instance + "/unshelve"
				p := s.begin(t, "POST", path, "k", tc.body)
				if tc.code != "" {
					if got := p.code(); got != tc.code {
						t.Errorf("code = %s, want %s", got, tc.code)
					}
					if fmt.Sprint(before) != fmt.Sprint(s.dump(t)) {
						t.Error("something changed")
					}
					return
				}
				id := map[string]string{"a": hostID, "b": otherID}[tc.host]
				tasks := s.fetch(t, id)
				if want := "/v1/instances/" + newID + "/unshelve"; len(tasks) != 1 || tasks[0].Path != want || tasks[0].ID != "k" {
					t.Fatalf("tasks of host %s = %+v", tc.host, tasks)
				}
				if named := strings.Contains(tc.body, "host"); named != (string(tasks[0].Body) == `{"host":"`+tc.host+`"}`) {
					t.Errorf("passed on with %s", tasks[0].Body)
				}
				// Now this host may claim it, whichever host had it last.
				claim := `{"from":"shelved_offloaded","to":"shelved","host":"` + tc.host + `","epoch":1,"op_id":"k"}`
				if w := s.speak(t, local(id), "POST", "/v1/instances/bare/transition", claim); w.Code != 200 {
					t.Errorf("claim = %d %s", w.Code, w.Body)
				}
				s.reply(t, id, "k", 202, `{"schema_version":1}`)
				first := fmt.Sprint(p.answer())
				if again := fmt.Sprint(s.begin(t, "POST", path, "k", tc.body).answer()); again != first {
					t.Errorf("again: %s, first: %s", again, first)
				}
			})
		})
	}
}

// The slower host cannot know which host has the instance now; the registry can.
func TestWhoLosesAnUnshelveIsToldWhoHasWon(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.ok(t, "POST", "/v1/instances:register", `{"id":"`+newID+`","name":"bare","host":"a","state":"stopped","slots":[],"disks":[]}`)
		for _, step := range []string{shelfStep("stopped", "shelved", `,"definition":{"domain":"<domain/>"}`), shelfStep("shelved", "shelved_offloaded", "")} {
			s.do(t, "POST", "/v1/instances/bare/transition", step)
		}
		claim := func(host string) *httptest.ResponseRecorder {
			id := map[string]string{"a": hostID, "b": otherID}[host]
			return s.speak(t, local(id), "POST", "/v1/instances/bare/transition", `{"from":"shelved_offloaded","to":"shelved","host":"`+host+`","epoch":1,"op_id":"claim `+host+`"}`)
		}
		p := s.begin(t, "POST", "/v1/instances/bare/unshelve", "k", `{"host":"a"}`)
		s.fetch(t, hostID)
		s.begin(t, "POST", "/v1/instances/bare/unshelve", "l", `{"host":"b"}`)
		s.fetch(t, otherID)
		if w := claim("b"); w.Code != 200 {
			t.Fatalf("claim = %d %s", w.Code, w.Body)
		}
		wantError(t, claim("a"), api.CodeConflict)
		s.reply(t, hostID, "k", 403, `{"error":{"code":"not_your_host","message":"the instance is another host's"}}`)
		status, body := p.answer()
		if status != 409 || !strings.Contains(body, "host b has it") {
			t.Errorf("the loser is told %d %s", status, body)
		}
	})
}
