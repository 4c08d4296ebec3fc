// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// Every call that a host must answer, with its host.
func TestCallIsPassedOnToTheHostThatHasToAnswer(t *testing.T) {
	const answer = `{"schema_version":1,"op":{"id":"k"}}`
	for name, tc := range map[string]struct {
		method, path, body, host string
		passed                   string // the path, if it differs
	}{
		"create, host named":       {"POST", "/v1/volumes?host=b", `{"name":"new","size_bytes":512}`, "b", "/v1/volumes"},
		"create, pool named":       {"POST", "/v1/volumes", `{"name":"new","size_bytes":512,"pool":"fast"}`, "a", ""},
		"create, nothing named":    {"POST", "/v1/volumes", `{"name":"new","size_bytes":512}`, "a", ""},
		"adopt an image":           {"POST", "/v1/volumes:adopt?host=b", `{"name":"new","path":"/x","format":"raw"}`, "b", "/v1/volumes:adopt"},
		"adopt an image of a pool": {"POST", "/v1/volumes:adopt", `{"name":"new","pool":"slow","volume_name":"x","format":"raw"}`, "a", ""},
		"adopt a domain":           {"POST", "/v1/instances:adopt?host=b", `{"domain":"db"}`, "b", "/v1/instances:adopt"},
		"delete a volume":          {"DELETE", "/v1/volumes/free?force=true", "", "a", "/v1/volumes/" + freeID + "?force=true"},
		"attach":                   {"POST", "/v1/volumes/free/attach", `{"instance":"web"}`, "a", "/v1/volumes/" + freeID + "/attach"},
		"detach":                   {"POST", "/v1/volumes/data/detach", `{"instance":"web"}`, "a", "/v1/volumes/" + volumeID + "/detach"},
		"migrate what is attached": {"POST", "/v1/volumes/data/migrate", `{"to_pool":"slow"}`, "a", "/v1/volumes/" + volumeID + "/migrate"},
		"migrate what is not":      {"POST", "/v1/volumes/" + freeID + "/migrate", `{"to_pool":"slow"}`, "a", ""},
		"plan a move":              {"POST", "/v1/volumes/data/migrate:plan", `{"to_pool":"slow"}`, "a", "/v1/volumes/" + volumeID + "/migrate:plan"},
		"which":                    {"GET", "/v1/volumes/data/which", "", "a", "/v1/volumes/" + volumeID + "/which"},
		"delete an attachment":     {"DELETE", "/v1/attachments/" + attachedID, "", "a", ""},
		"delete it by force":       {"DELETE", "/v1/attachments/" + attachedID + "?force=1", "", "a", ""},
		"start":                    {"POST", "/v1/attachments/" + attachedID + "/migration:start", `{"to_pool":"slow"}`, "a", ""},
		"copy":                     {"POST", "/v1/attachments/" + movedID + "/migration:copy", "", "a", ""},
		"complete":                 {"POST", "/v1/attachments/" + movedID + "/migration:complete", `{"dst_attachment_id":"` + dstID + `"}`, "a", ""},
		"cancel":                   {"POST", "/v1/attachments/" + movedID + "/migration:cancel", "", "a", ""},
		"set the bandwidth":        {"PATCH", "/v1/migrations/" + moveID, `{"bandwidth_bytes_per_second":7}`, "a", ""},
		"copy by migration":        {"POST", "/v1/migrations/" + moveID + "/copy", "", "a", ""},
		"complete by migration":    {"POST", "/v1/migrations/" + moveID + "/complete", "{}", "a", ""},
		"cancel by migration":      {"POST", "/v1/migrations/" + moveID + "/cancel", "", "a", ""},
		"start an instance":        {"POST", "/v1/instances/web/start", "", "a", "/v1/instances/" + instanceID + "/start"},
		"stop an instance":         {"POST", "/v1/instances/web/stop", `{"force":true}`, "a", "/v1/instances/" + instanceID + "/stop"},
		"repair an instance":       {"POST", "/v1/instances/web/repair", "", "a", "/v1/instances/" + instanceID + "/repair"},
		"reboot an instance":       {"POST", "/v1/instances/web/reboot", "", "a", "/v1/instances/" + instanceID + "/reboot"},
		"pause an instance":        {"POST", "/v1/instances/web/pause", "", "a", "/v1/instances/" + instanceID + "/pause"},
		"unpause an instance":      {"POST", "/v1/instances/web/unpause", "", "a", "/v1/instances/" + instanceID + "/unpause"},
		"shelve an instance":       {"POST", "/v1/instances/web/shelve", `{"keep_on_host":true}`, "a", "/v1/instances/" + instanceID + "/shelve"},
		"what a host is at":        {"GET", "/v1/ops?host=b", "", "b", "/v1/ops"},
		"what became of it":        {"GET", "/v1/ops/" + taskOfA, "", "a", ""},
		"retype to another's pool": {"POST", "/v1/volumes/free/retype", `{"type":"slow-only","migration_policy":"on-demand"}`, "a", "/v1/volumes/" + freeID + "/migrate"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				s.ok(t, "POST", "/v1/types", `{"name":"slow-only","pools":["slow"]}`)
				p := s.begin(t, tc.method, tc.path, "k", tc.body)
				got := map[string][]api.Task{"a": s.fetch(t, hostID), "b": s.fetch(t, otherID)}
				if len(got["a"])+len(got["b"]) != 1 || len(got[tc.host]) != 1 {
					if p.over() {
						t.Log(p.answer())
					}
					t.Fatalf("tasks = %+v, want one for host %s", got, tc.host)
				}
				task := got[tc.host][0]
				path := tc.passed
				if path == "" {
					path = tc.path
				}
				if method := tc.method; task.Path != path || task.Method != method || !strings.HasPrefix(task.Who, "uid=0") || method != "GET" && task.ID != "k" {
					t.Errorf("task = %+v %s", task, task.Body)
				}
				id := map[string]string{"a": hostID, "b": otherID}[tc.host]
				s.reply(t, id, task.ID, 202, answer)
				if status, body := p.answer(); status != 202 || body != answer {
					t.Errorf("answer = %d %s", status, body)
				}
			})
		})
	}
}

func TestWhatAHostAnswersIsPrintableForWhoeverAsked(t *testing.T) {
	const said = `{"error":{"code":"conflict","message":"\u001b[2Jgone"}}`
	const want = `{"error":{"code":"conflict","message":"�[2Jgone"}}`
	bubble(t, func(t *testing.T, s *site) {
		for method, path := range map[string]string{"POST": "/v1/instances/web/start", "GET": "/v1/ops?host=a"} {
			p := s.begin(t, method, path, "", "")
			s.reply(t, hostID, s.fetch(t, hostID)[0].ID, 409, said)
			if status, body := p.answer(); status != 409 || body != want {
				t.Errorf("%s %s: answer = %d %s", method, path, status, body)
			}
		}
	})
}

func TestAmbiguousOrUnknownHostIsAskedForAndNothingIsStored(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		before := s.dump(t)
		for name, tc := range map[string]struct {
			path, body string
			code       api.Code
		}{
			"adopt by path":      {"/v1/volumes:adopt", `{"name":"new","path":"/x","format":"raw"}`, api.CodeInvalidArgument},
			"adopt domain":       {"/v1/instances:adopt", `{"domain":"db"}`, api.CodeInvalidArgument},
			"unknown host":       {"/v1/instances:adopt?host=c", `{"domain":"db"}`, api.CodeNotFound},
			"unknown pool":       {"/v1/volumes", `{"name":"new","size_bytes":512,"pool":"x"}`, api.CodeNotFound},
			"unknown type":       {"/v1/volumes", `{"name":"new","size_bytes":512,"type":"x"}`, api.CodeNotFound},
			"unknown instance":   {"/v1/volumes/data/attach", `{"instance":"x"}`, api.CodeNotFound},
			"unknown volume":     {"/v1/volumes/x/migrate", `{"to_pool":"slow"}`, api.CodeNotFound},
			"unknown attachment": {"/v1/attachments/x/migration:copy", ``, api.CodeNotFound},
		} {
			if got := s.begin(t, "POST", tc.path, "", tc.body).code(); got != tc.code {
				t.Errorf("%s: code = %s, want %s", name, got, tc.code)
			}
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("something changed (-before +after):\n%s", diff)
		}
		// An inactive pool leaves types without a possible pool.
		s.ok(t, "POST", "/v1/types", `{"name":"slow-only","pools":["slow"]}`)
		s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", strings.Replace(reportOfA, `"path":"/slow","shared":false,"multiattach":false,"active":true`, `"path":"/slow","shared":false,"multiattach":false,"active":false`, 1))
		if got := s.begin(t, "POST", "/v1/volumes", "", `{"name":"new","size_bytes":512,"type":"slow-only"}`).code(); got != api.CodeNoCapablePool {
			t.Errorf("a type without an active pool: code = %s", got)
		}
		if got := s.begin(t, "POST", "/v1/volumes/free/retype", "", `{"type":"slow-only"}`).code(); got != api.CodePolicyDenied {
			t.Errorf("retype without a move: code = %s", got)
		}
	})
}

func TestHostThatIsNotThereIsUnavailableAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		pass(time.Minute)
		begin := time.Now()
		if got := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow"}`).code(); got != api.CodeHypervisorUnavailable || time.Since(begin) != 0 {
			t.Errorf("code = %s after %s", got, time.Since(begin))
		}
		if _, _, err := s.store.Tasks.Get(t.Context(), "k"); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("the task was stored: %v", err)
		}
		s.fetch(t, hostID)
		if _, err := s.store.Hosts.Fence(t.Context(), store.Call{}, "a", api.HostFence{Evidence: "off", EvenIfUp: true}); err != nil {
			t.Fatal(err)
		}
		if got := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow"}`).code(); got != api.CodeHypervisorUnavailable {
			t.Errorf("fenced: code = %s", got)
		}
	})
}

// A volume is deleted, and the request is repeated: it gets the first answer, although the volume
// that identified its host no longer exists.
func TestSameKeyIsAnsweredAsBeforeWhateverHasBecomeOfTheThing(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "DELETE", "/v1/volumes/free", "k", "")
		s.fetch(t, hostID)
		if _, err := s.store.Volumes.Forget(t.Context(), store.Call{}, freeID); err != nil {
			t.Fatal(err)
		}
		s.reply(t, hostID, "k", 200, `{"schema_version":1,"volume":{}}`)
		first := fmt.Sprint(p.answer())
		pass(time.Hour) // and the host is away too
		if again := fmt.Sprint(s.begin(t, "DELETE", "/v1/volumes/free", "k", "").answer()); again != first {
			t.Errorf("again: %s, first: %s", again, first)
		}
		if got := s.begin(t, "DELETE", "/v1/volumes/data", "k", "").code(); got != api.CodeIdempotencyMismatch {
			t.Errorf("another request: code = %s", got)
		}
		if got := s.begin(t, "DELETE", "/v1/volumes/free", "k2", "").code(); got != api.CodeNotFound {
			t.Errorf("another key: code = %s", got)
		}
	})
}

func TestRefusalOfAHostIsPassedBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow"}`)
		s.fetch(t, hostID)
		s.reply(t, hostID, "k", 409, `{"error":{"code":"multiattached","message":"it has 2 attachments"}}`)
		if status, body := p.answer(); status != 409 || !strings.Contains(body, "it has 2 attachments") {
			t.Errorf("answer = %d %s", status, body)
		}
	})
}

func TestRetypeInPlaceAsksNobodyAndAMovedOneGoesWhereItWent(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		var v api.Volume
		decode(t, s.ok(t, "POST", "/v1/volumes/free/retype", `{"type":"gold"}`), &v)
		if v.Type != "gold" || len(s.fetch(t, hostID)) != 0 {
			t.Errorf("volume = %+v", v)
		}
		s.ok(t, "POST", "/v1/types", `{"name":"slow-only","pools":["slow"]}`)
		const body = `{"type":"slow-only","migration_policy":"on-demand","bandwidth_bytes_per_second":1048576,"delete_source":true}`
		p := s.begin(t, "POST", "/v1/volumes/free/retype", "k", body)
		var slowOnly api.VolumeType
		decode(t, s.ok(t, "GET", "/v1/types/slow-only", ""), &slowOnly)
		var target api.MigrationTarget
		if err := json.Unmarshal(s.fetch(t, hostID)[0].Body, &target); err != nil {
			t.Fatal(err)
		}
		want := api.MigrationTarget{ToPool: "slow", ToType: slowOnly.ID, CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: 1 << 20}, DeleteSource: true}
		if diff := cmp.Diff(want, target); diff != "" {
			t.Errorf("the move that the host is asked for (-want +got):\n%s", diff)
		}
		s.reply(t, hostID, "k", 202, `{"schema_version":1}`)
		first := fmt.Sprint(p.answer())
		// Now it would not be moved at all.
		s.ok(t, "PATCH", "/v1/types/slow-only", `{"pools":[]}`)
		if again := fmt.Sprint(s.begin(t, "POST", "/v1/volumes/free/retype", "k", body).answer()); again != first {
			t.Errorf("again: %s, first: %s", again, first)
		}
		if got := s.begin(t, "POST", "/v1/volumes/free/retype", "k", `{"type":"gold"}`).code(); got != api.CodeIdempotencyMismatch {
			t.Errorf("another type: code = %s", got)
		}
	})
}

func TestThePlanOfARetypeIsThatOfItsMoveAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.ok(t, "POST", "/v1/types", `{"name":"slow-only","pools":["slow"]}`)
		type answer struct {
			Plan api.RetypePlan `json:"retype_plan"`
		}
		plan := func(p *pending) (got api.RetypePlan) {
			status, body := p.answer()
			var doc answer
			decode(t, json.RawMessage(body), &doc)
			if status != 200 {
				t.Fatalf("answer = %d %s", status, body)
			}
			return doc.Plan
		}
		if p := plan(s.begin(t, "POST", "/v1/volumes/free/retype:plan", "", `{"type":"gold"}`)); p.Move != nil || p.ToType != "gold" || p.FromType == p.ToType || p.VolumeID != freeID {
			t.Errorf("where it is: %+v", p)
		}
		if got := s.begin(t, "POST", "/v1/volumes/free/retype:plan", "", `{"type":"slow-only"}`).code(); got != api.CodePolicyDenied {
			t.Errorf("a move that nobody asked for: code = %s", got)
		}
		const moving = `{"type":"slow-only","migration_policy":"on-demand","to_format":"qcow2"}`
		p := s.begin(t, "POST", "/v1/volumes/free/retype:plan", "", moving)
		task := s.fetch(t, hostID)[0]
		if want := "/v1/volumes/" + freeID + "/migrate:plan"; task.Path != want || !strings.Contains(string(task.Body), `"to_pool":"slow"`) || !strings.Contains(string(task.Body), `"to_format":"qcow2"`) {
			t.Errorf("the host is asked %s %s", task.Path, task.Body)
		}
		s.reply(t, hostID, task.ID, 200, `{"plan":{"volume_id":"`+freeID+`","needed_bytes":7}}`)
		if got := plan(p); got.Move == nil || got.Move.NeededBytes == nil || *got.Move.NeededBytes != 7 {
			t.Errorf("plan = %+v", got)
		}
		p = s.begin(t, "POST", "/v1/volumes/free/retype:plan", "", moving)
		s.reply(t, hostID, s.fetch(t, hostID)[0].ID, 409, `{"error":{"code":"no_space","message":"full"}}`)
		if got := p.code(); got != api.CodeNoSpace {
			t.Errorf("what the host refuses: code = %s", got)
		}
		for pool, want := range map[string]string{"": string(api.CodePolicyDenied), "slow": "none:"} {
			p = s.begin(t, "POST", "/v1/volumes/free/retype:plan", "", `{"type":"slow-only","migration_policy":"on-demand","to_path":"/dev/slow/x"}`)
			s.reply(t, hostID, s.fetch(t, hostID)[0].ID, 200, `{"plan":{"volume_id":"`+freeID+`","dst":{"path":"/dev/slow/x","format":"raw","pool":"`+pool+`"}}}`)
			if got := p.code(); !strings.HasPrefix(string(got), want) {
				t.Errorf("to a device that the host has found in pool %q: code = %s, want %s", pool, got, want)
			}
		}
		var v api.Volume
		decode(t, s.ok(t, "GET", "/v1/volumes/free", ""), &v)
		if v.Type == "gold" || v.Type == "slow-only" || v.MigrationID != "" {
			t.Errorf("volume = %+v", v)
		}
	})
}

func TestRetypePassesItsTargetAndMethodToTheHostThatMoves(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.ok(t, "POST", "/v1/types", `{"name":"anywhere"}`)
		var typ api.VolumeType
		decode(t, s.ok(t, "GET", "/v1/types/anywhere", ""), &typ)
		for given, want := range map[string]api.MigrationTarget{
			`"to_pool":"slow","method":"mirror","verify":"full"`:      {ToPool: "slow", Method: api.MethodMirror, CopyOptions: api.CopyOptions{Verify: api.VerifyFull}},
			`"to_path":"/srv/free.raw","method":"overlay"`:            {ToPath: "/srv/free.raw", Method: api.MethodOverlay},
			`"to_path":"/srv/free.raw","overwrite":true,"pace":"off"`: {ToPath: "/srv/free.raw", Overwrite: true, CopyOptions: api.CopyOptions{Pace: api.PaceOff}},
			`"to_pool":"slow","to_format":"qcow2"`:                    {ToPool: "slow", ToFormat: api.FormatQcow2},
			`"to_pool":"slow","to_path":""`:                           {ToPool: "slow"},
		} {
			want.ToType = typ.ID
			p := s.begin(t, "POST", "/v1/volumes/free/retype", given, `{"type":"anywhere","migration_policy":"on-demand",`+given+`}`)
			var target api.MigrationTarget
			if err := json.Unmarshal(s.fetch(t, hostID)[0].Body, &target); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, target); diff != "" {
				t.Errorf("%s: the move that the host is asked for (-want +got):\n%s", given, diff)
			}
			s.reply(t, hostID, given, 409, `{"error":{"code":"dst_in_use","message":"taken","details":{"overwrites":"/srv/free.raw"}}}`)
			if status, body := p.answer(); status != 409 || !strings.Contains(body, `"overwrites":"/srv/free.raw"`) {
				t.Errorf("%s: answer = %d %s", given, status, body)
			}
		}
		for given, want := range map[string]api.Code{
			`"migration_policy":"never","to_pool":"slow"`:                         api.CodeInvalidArgument,
			`"to_format":"qcow2"`:                                                 api.CodeInvalidArgument,
			`"migration_policy":"on-demand","to_format":"vmdk"`:                   api.CodeInvalidArgument,
			`"method":"mirror"`:                                                   api.CodeInvalidArgument,
			`"migration_policy":"on-demand","to_pool":"slow","to_path":"/srv/x"`:  api.CodeInvalidArgument,
			`"migration_policy":"on-demand","to_pool":"slow","overwrite":true`:    api.CodeInvalidArgument,
			`"migration_policy":"on-demand","delete_source":true,"verify":"none"`: api.CodeInvalidArgument,
			`"migration_policy":"on-demand","to_pool":"slow","method":"live"`:     api.CodeInvalidArgument,
			`"migration_policy":"on-demand","to_pool":"slow","method":"x"`:        api.CodeInvalidArgument,
		} {
			if got := s.begin(t, "POST", "/v1/volumes/free/retype", "", `{"type":"anywhere",`+given+`}`).code(); got != want {
				t.Errorf("%s: code = %s, want %s", given, got, want)
			}
		}
		if tasks := s.fetch(t, hostID); len(tasks) != 0 {
			t.Errorf("the host is asked for %+v", tasks)
		}
	})
}

func TestForceAtAFencedHostDeletesExactlyOneAttachment(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.ok(t, "POST", "/v1/hosts/a/fence", `{"evidence":"its power is off","even_if_up":true}`)
		path := "/v1/attachments/" + attachedID
		if got := s.begin(t, "DELETE", path, "", "").code(); got != api.CodeHypervisorUnavailable {
			t.Errorf("without force: code = %s", got)
		}
		first := fmt.Sprint(s.begin(t, "DELETE", path+"?force=1", "k", "").answer())
		if tasks := s.fetch(t, hostID); !strings.HasPrefix(first, "200") || len(tasks) != 0 {
			t.Errorf("with force: %s, tasks %+v", first, tasks)
		}
		if again := fmt.Sprint(s.begin(t, "DELETE", path+"?force=1", "k", "").answer()); again != first {
			t.Errorf("again: %s, first: %s", again, first)
		}
		if got := s.begin(t, "DELETE", path+"?force=1", "", "").code(); got != api.CodeNotFound {
			t.Errorf("another key: code = %s", got)
		}
		var left []api.Attachment
		if decode(t, s.ok(t, "GET", "/v1/attachments", ""), &left); len(left) != 2 {
			t.Errorf("%d attachments are left, want that at src and that at dst of the migration", len(left))
		}
	})
}

// The object of a request is renamed, and another object gets its name, before the host has fetched
// the request, or after it has and died. The host gets the original object, and so does a repeated
// request.
func TestARenameNeverHasAHostDoToAnotherThingWhatWasAsked(t *testing.T) {
	const target = `{"to_pool":"slow"}`
	for name, tc := range map[string]struct{ method, path, body, passed, passedBody string }{
		"delete":  {"DELETE", "/v1/volumes/free", "", "/v1/volumes/" + freeID, ""},
		"migrate": {"POST", "/v1/volumes/free/migrate", target, "/v1/volumes/" + freeID + "/migrate", target},
		"attach":  {"POST", "/v1/volumes/free/attach", `{"instance":"web"}`, "/v1/volumes/" + freeID + "/attach", `{"instance":"` + instanceID + `"}`},
		"detach":  {"POST", "/v1/volumes/data/detach", `{"instance":"web"}`, "/v1/volumes/" + volumeID + "/detach", `{"instance":"` + instanceID + `"}`},
		"stop":    {"POST", "/v1/instances/web/stop", `{"force":true}`, "/v1/instances/" + instanceID + "/stop", `{"force":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				p := s.begin(t, tc.method, tc.path, "k", tc.body)
				for _, rename := range [][2]string{{"free", "kept"}, {"data", "free"}, {"kept", "data"}} {
					s.ok(t, "PATCH", "/v1/volumes/"+rename[0], `{"name":"`+rename[1]+`"}`)
				}
				asked := func(when string, tasks []api.Task) {
					t.Helper()
					if len(tasks) != 1 || tasks[0].Path != tc.passed || string(tasks[0].Body) != tc.passedBody {
						t.Errorf("%s: tasks = %+v, want %s %s", when, tasks, tc.passed, tc.passedBody)
					}
				}
				asked("from the queue", s.fetch(t, hostID))
				asked("after the host's death", s.fetchAs(t, hostID, "another"))
				again := s.begin(t, tc.method, tc.path, "k", tc.body)
				s.reply(t, hostID, "k", 200, `{"schema_version":1}`)
				first, second := fmt.Sprint(p.answer()), fmt.Sprint(again.answer())
				if first != second || !strings.HasPrefix(first, "200") {
					t.Errorf("answers = %s and %s", first, second)
				}
			})
		})
	}
}

// A withdrawn request is repeated: its names are resolved again.
func TestAWithdrawnRequestThatIsAskedForAgainMeansWhatItSaysThen(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		const path, body = "/v1/volumes/free/migrate", `{"to_pool":"slow"}`
		if got := s.begin(t, "POST", path, "k", body).code(); got != api.CodeHypervisorUnavailable {
			t.Fatalf("code = %s", got)
		}
		s.ok(t, "PATCH", "/v1/volumes/free", `{"name":"kept"}`)
		s.ok(t, "PATCH", "/v1/volumes/data", `{"name":"free"}`)
		s.fetch(t, hostID) // so that it is present
		s.begin(t, "POST", path, "k", body)
		if tasks := s.fetch(t, hostID); len(tasks) != 1 || tasks[0].Path != "/v1/volumes/"+volumeID+"/migrate" {
			t.Errorf("tasks = %+v", tasks)
		}
	})
}

// The registry refuses at once by its own knowledge, even if the host is away.
func TestWhatTheRegistryKnowsItRefusesWhileTheHostIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.ok(t, "POST", "/v1/types", `{"name":"many","multiattach":true,"pools":[]}`)
		s.ok(t, "POST", "/v1/types", `{"name":"narrow","pools":["slow"]}`)
		pass(time.Minute)
		refused := func(what, method, path, body string, want api.Code) {
			t.Helper()
			begin := time.Now()
			if got := s.begin(t, method, path, "", body).code(); got != want || time.Since(begin) != 0 {
				t.Errorf("%s: %s after %s, want %s", what, got, time.Since(begin), want)
			}
		}
		const slow = `{"to_pool":"slow"}`
		refused("a volume that moves", "POST", "/v1/volumes/moving/migrate", slow, api.CodeMigrationActive)
		refused("attach it", "POST", "/v1/volumes/moving/attach", `{"instance":"web"}`, api.CodeMigrationActive)
		refused("delete it", "DELETE", "/v1/volumes/moving", "", api.CodeMigrationActive)
		refused("delete what is attached", "DELETE", "/v1/volumes/data", "", api.CodeVolumeInUse)
		refused("attach what is there", "POST", "/v1/volumes/data/attach", `{"instance":"web"}`, api.CodeConflict)
		refused("detach what is not there", "POST", "/v1/volumes/free/detach", `{"instance":"web"}`, api.CodeNotFound)
		refused("an unknown method", "POST", "/v1/volumes/data/migrate", `{"to_pool":"slow","method":"zzz"}`, api.CodeInvalidArgument)
		refused("no destination", "POST", "/v1/volumes/data/migrate", `{}`, api.CodeInvalidArgument)
		refused("a bandwidth below 0", "POST", "/v1/volumes/data/migrate", `{"to_pool":"slow","bandwidth_bytes_per_second":-1}`, api.CodeInvalidArgument)
		refused("an odd size", "POST", "/v1/volumes", `{"name":"new","size_bytes":-1}`, api.CodeInvalidArgument)
		refused("a pool that cannot do multiattach", "POST", "/v1/volumes", `{"name":"new","size_bytes":512,"type":"many","pool":"fast"}`, api.CodeNoCapablePool)
		refused("a pool that the type does not allow", "POST", "/v1/volumes", `{"name":"new","size_bytes":512,"type":"narrow","pool":"fast"}`, api.CodePolicyDenied)
		refused("a device that no disk has", "POST", "/v1/volumes/free/attach", `{"instance":"web","device":"vda1"}`, api.CodeInvalidArgument)
		refused("the estimate of nothing", "POST", "/v1/volumes/data/migrate:estimate", `{}`, api.CodeInvalidArgument)
		refused("the estimate for no pool", "POST", "/v1/volumes/data/migrate:estimate", `{"to_pool":"nope"}`, api.CodeNotFound)
		refused("all guests paused to no pool", "POST", "/v1/volumes/data/migrate", `{"to_pool":"nope","pause_all":true}`, api.CodeNotFound)
		s.ok(t, "POST", "/v1/instances/web/lock", `{"reason":"audit"}`)
		for _, verb := range []string{"start", "stop", "reboot", "pause", "unpause", "repair", "shelve"} {
			refused("locked: "+verb, "POST", "/v1/instances/web/"+verb, "", api.CodeInstanceLocked)
		}
		refused("locked: attach", "POST", "/v1/volumes/free/attach", `{"instance":"web"}`, api.CodeInstanceLocked)
		refused("locked: detach", "POST", "/v1/volumes/data/detach", `{"instance":"web"}`, api.CodeInstanceLocked)
	})
}
