// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// progress makes host a report the progress of its migration.
func (s *site) progress(t *testing.T, state api.MigrationState, done int64) {
	t.Helper()
	m, err := json.Marshal(api.Migration{
		ID: moveID, VolumeID: movingID, Host: "a", State: state, Phase: string(state), BytesTotal: 1 << 20, BytesDone: done, RateBytesPerSecond: 7,
	})
	expect.OK(t, err)
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", strings.Replace(reportOfA, `"instances":[]`, `"instances":[],"migrations":[`+string(m)+`]`, 1))
}

// move makes host a set the state of its migration.
func (s *site) move(t *testing.T, states ...api.MigrationState) {
	t.Helper()
	for _, to := range states {
		s.ok(t, "POST", "/v1/migrations/"+moveID+"/transition",
			fmt.Sprintf(`{"from":["starting","started","copying","copied","completing"],"to":"%s","op_id":"o",%s}`, to, theirs))
	}
	synctest.Wait()
}

// summaries formats events as "seq state bytes result".
func summaries(events []api.Event) []string {
	lines := []string{}
	for _, e := range events {
		line := fmt.Sprint(e.Seq, " ", e.To)
		if e.Migration != nil {
			line += fmt.Sprint(" ", e.Migration.BytesDone)
		}
		if e.Result != "" {
			line += " " + e.Result
		}
		lines = append(lines, line)
	}
	return lines
}

func TestMigrationShowsWhatItsHostSaysOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		shows := func(want string) {
			t.Helper()
			var m api.Migration
			decode(t, s.ok(t, "GET", "/v1/migrations/"+moveID, ""), &m)
			var all []api.Migration
			decode(t, s.ok(t, "GET", "/v1/migrations?all=1", ""), &all)
			for _, m := range append(all, m) {
				if got := fmt.Sprint(m.State, " ", m.Phase, " ", m.BytesDone, " ", m.RateBytesPerSecond); got != want || m.Dst.Path != "/slow/moving" {
					t.Errorf("migration is %s, want %s; dst %+v", got, want, m.Dst)
				}
			}
		}
		shows("starting starting 0 0")
		s.progress(t, api.MigrationCopying, 1000) // ahead of its transitions
		shows("copying copying 1000 7")
		s.move(t, api.MigrationStarted)
		shows("copying copying 1000 7")
		s.move(t, api.MigrationCompleting) // its last report is old now
		shows("completing completing 1000 7")
		s.ok(t, "POST", "/v1/hosts/a/fence", `{"evidence":"off","even_if_up":true}`)
		shows("orphaned completing 1000 7")
		s.ok(t, "POST", "/v1/migrations/"+moveID+"/abandon", `{"keep":"src","reason":"gone"}`)
		shows("cancelled cancelled 0 0")
	})
}

func TestMigrationIsFollowedToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "GET", "/v1/migrations/"+moveID+"/events?since=41", "", "")
		s.move(t, api.MigrationStarted)
		pass(time.Second)
		for done := range int64(3) {
			s.progress(t, api.MigrationCopying, 1000*done)
			pass(time.Second)
		}
		pass(time.Minute)
		s.move(t, api.MigrationCompleting)
		pass(time.Second)
		s.move(t, api.MigrationCompleted)
		pass(time.Second)
		want := []string{"42 starting 0", "43 started 0", "44 copying 0", "45 copying 1000", "46 copying 2000", "47 completing 2000", "48 completed 0"}
		if diff := cmp.Diff(want, summaries(p.events(t))); diff != "" || !p.over() {
			t.Errorf("over %t, lines (-want +got):\n%s", p.over(), diff)
		}
		again := s.begin(t, "GET", "/v1/migrations/"+moveID+"/events", "", "")
		if diff := cmp.Diff([]string{"1 completed 0"}, summaries(again.events(t))); diff != "" || !again.over() {
			t.Errorf("over %t, a reader that comes late (-want +got):\n%s", again.over(), diff)
		}
	})
}

func TestReaderThatGoesAwayEndsItsStream(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "GET", "/v1/migrations/"+moveID+"/events", "", "")
		p.end()
		pass(time.Second)
		if !p.over() {
			t.Error("the stream goes on")
		}
	})
}

// answerOps makes host a answer every query of an op with this state, for d.
func (s *site) answerOps(t *testing.T, state string, d time.Duration) (asked int) {
	t.Helper()
	for range d / (100 * time.Millisecond) {
		for _, task := range s.fetch(t, hostID) {
			if task.Path != "/v1/ops/k" || task.Method != "GET" {
				t.Errorf("host a is asked %s %s", task.Method, task.Path)
			}
			asked++
			s.reply(t, hostID, task.ID, 200, `{"schema_version":1,"op":{"id":"k","kind":"migrate","state":"`+state+`","migration_id":"`+moveID+`"}}`)
		}
		pass(100 * time.Millisecond)
	}
	return asked
}

func TestOpIsFollowedAtItsHostToItsResult(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "POST", "/v1/migrations/"+moveID+"/copy", "k", "")
		s.fetch(t, hostID)
		s.reply(t, hostID, "k", 202, `{}`)
		p.answer()

		p = s.begin(t, "GET", "/v1/ops/k/events?since=0", "", "")
		s.answerOps(t, "running", time.Second)
		s.move(t, api.MigrationStarted)
		s.answerOps(t, "running", time.Second)
		asked := 0
		for done := range int64(10) { // progress causes no further queries of the host
			s.progress(t, api.MigrationCopying, 100*done)
			asked += s.answerOps(t, "running", 200*time.Millisecond)
		}
		if asked > 4 {
			t.Errorf("the host was asked %d times in two seconds", asked)
		}
		s.move(t, api.MigrationCompleting, api.MigrationCompleted)
		s.answerOps(t, "done", 2*time.Second)
		lines := summaries(p.events(t))
		if len(lines) < 10 || lines[0] != "1 starting 0" || !strings.HasSuffix(lines[len(lines)-1], " completed 0 done") || !p.over() {
			t.Errorf("over %t, lines %q", p.over(), lines)
		}
		for i, e := range p.events(t) {
			if e.Seq != int64(i+1) || e.OpID != "k" || (e.Result != "") != (i == len(lines)-1) {
				t.Errorf("line %d: %+v", i, e)
			}
		}
		if got := s.begin(t, "GET", "/v1/ops/x/events", "", "").code(); got != api.CodeNotFound {
			t.Errorf("an unknown op: code = %s", got)
		}
	})
}

func TestHostThatGoesAwayEndsTheStreamOfItsOp(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "GET", "/v1/ops/"+taskOfA+"/events", "", "")
		for _, task := range s.fetch(t, hostID) {
			s.reply(t, hostID, task.ID, 200, `{"schema_version":1,"op":{"id":"`+taskOfA+`","kind":"adopt","state":"running"}}`)
		}
		pass(time.Minute)
		if got := summaries(p.events(t)); !p.over() || len(got) != 1 {
			t.Errorf("over %t, lines %q", p.over(), got)
		}
		if got := s.begin(t, "GET", "/v1/ops/"+taskOfA+"/events", "", "").code(); got != api.CodeHypervisorUnavailable {
			t.Errorf("then: code = %s", got)
		}
	})
}

func TestDrainIsShownFollowedAndStopped(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		var d api.Drain
		decode(t, s.ok(t, "POST", "/v1/pools/slow/drain", `{"to_pool":"fast","parallel":2}`), &d)
		if d.State != api.DrainRunning || d.Parallel != 2 || d.Pool != "slow" {
			t.Errorf("drain = %+v", d)
		}
		var all []api.Drain
		if decode(t, s.ok(t, "GET", "/v1/drains", ""), &all); len(all) != 2 {
			t.Errorf("%d drains, want 2", len(all))
		}
		of := "fast"
		for _, other := range all {
			if other.Pool == of {
				d = other
			}
		}
		shown := func() api.DrainVolume {
			var now api.Drain
			decode(t, s.ok(t, "GET", "/v1/drains/"+d.ID, ""), &now)
			for _, v := range now.Volumes {
				if v.VolumeID == freeID {
					return v
				}
			}
			t.Fatal("the drain does not have the volume")
			return api.DrainVolume{}
		}
		if v := shown(); v.State != api.DrainVolumePending || v.Error != nil {
			t.Errorf("with its host there the volume is %+v", v)
		}
		pass(time.Minute)
		if v := shown(); v.Error == nil || v.Error.Code != api.CodeHypervisorUnavailable {
			t.Errorf("without its host the volume is %+v", v)
		}
		p := s.begin(t, "GET", "/v1/drains/"+d.ID+"/events", "", "")
		moving := api.DrainVolume{VolumeID: freeID, State: api.DrainVolumeMoving}
		expect.OK(t, s.store.Drains.SetVolume(t.Context(), store.Call{}, d.ID, moving))
		pass(time.Second)
		for _, verb := range []string{"pause", "resume", "stop"} {
			s.ok(t, "POST", "/v1/drains/"+d.ID+"/"+verb, "")
			pass(time.Second)
		}
		want := []string{"1 running", "2 running", "3 paused", "4 running", "5 stopped"}
		if diff := cmp.Diff(want, summaries(p.events(t))); diff != "" || !p.over() {
			t.Errorf("over %t, lines (-want +got):\n%s", p.over(), diff)
		}
		if got := s.begin(t, "POST", "/v1/drains/"+d.ID+"/resume", "", "").code(); got != api.CodeConflict && got != api.CodeStateForbidden {
			t.Errorf("resume of a stopped drain: code = %s", got)
		}
	})
}

// Only the host's journal has the cost of a migration.
func TestMigrationThatIsOverShowsWhatItsHostKnowsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.move(t, api.MigrationStarted, api.MigrationCompleting, api.MigrationCompleted)
		p := s.begin(t, "GET", "/v1/migrations/"+moveID, "", "")
		tasks := s.fetch(t, hostID)
		if len(tasks) != 1 || tasks[0].Path != "/v1/migrations/"+moveID {
			t.Fatalf("tasks = %+v, want the question for the migration", tasks)
		}
		s.reply(t, hostID, tasks[0].ID, 200, fmt.Sprintf(
			`{"schema_version":1,"migration":{"id":"%s","state":"copying","dst":{"path":"/lie"},"bytes_total":77,"bytes_done":77,"exposed_seconds":1.5}}`, moveID))
		shown := func() (m api.Migration) {
			t.Helper()
			_, body := p.answer()
			var answer struct{ Migration json.RawMessage }
			decode(t, json.RawMessage(body), &answer)
			decode(t, answer.Migration, &m)
			return m
		}
		if m := shown(); m.State != api.MigrationCompleted || m.Dst.Path != "/slow/moving" || m.BytesTotal != 77 || m.ExposedSeconds != 1.5 {
			t.Errorf("migration = %+v", m)
		}
		// The answer does not wait long for a host that does not answer.
		began := time.Now()
		p = s.begin(t, "GET", "/v1/migrations/"+moveID, "", "")
		pass(time.Minute)
		if m := shown(); m.State != api.MigrationCompleted || time.Since(began) > 2*time.Minute {
			t.Errorf("without its host: %+v", m)
		}
	})
}
