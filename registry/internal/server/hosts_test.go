// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestHostTakesAndAnswersItsTasksOverTheAPI(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		own := speaker{cert: certificate(hostID, "a"), epoch: "1"}
		p := s.begin(t, "POST", "/v1/volumes/data/migrate", "k", `{"to_pool":"slow"}`)
		w := s.speak(t, own, "GET", "/v1/hosts/"+hostID+"/tasks?session=s&wait_seconds=20", "")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"id":"k"`) {
			t.Fatalf("tasks = %d %s", w.Code, w.Body)
		}
		other := speaker{cert: certificate(otherID, "b"), epoch: "1"}
		wantError(t, s.speak(t, other, "POST", "/v1/hosts/"+otherID+"/tasks/k/answer", `{"status":200,"body":{}}`), api.CodeNotYourHost)
		w = s.speak(t, own, "POST", "/v1/hosts/"+hostID+"/tasks/k/answer", `{"status":202,"body":{"schema_version":1}}`)
		if w.Code != http.StatusOK {
			t.Errorf("answer = %d %s", w.Code, w.Body)
		}
		if status, body := p.answer(); status != 202 || body != `{"schema_version":1}` {
			t.Errorf("the caller got %d %s", status, body)
		}
		wantError(t, s.speak(t, own, "POST", "/v1/hosts/"+hostID+"/tasks/x/answer", `{"status":200,"body":{}}`), api.CodeNotFound)
	})
}

func TestAHostThatWaitsForTasksIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		host := func() (h api.Host) { decode(t, s.ok(t, "GET", "/v1/hosts/a", ""), &h); return h }
		tasks := "/v1/hosts/" + hostID + "/tasks?session=s&wait_seconds="
		pass(time.Minute)
		if h := host(); h.Status != api.HostSuspect {
			t.Fatalf("a host that is silent for a minute is %s", h.Status)
		}
		wantError(t, s.speak(t, speaker{host: hostID, epoch: "2"}, "GET", tasks+"0", ""), api.CodeStaleEpoch)
		if h := host(); h.Status != api.HostSuspect {
			t.Errorf("after a poll that was refused it is %s", h.Status)
		}
		go s.handler.ServeHTTP(httptest.NewRecorder(), speaker{host: hostID, epoch: "1"}.request(t.Context(), "GET", tasks+"300", ""))
		synctest.Wait()
		if h := host(); h.Status != api.HostUp || time.Since(*h.LastSeenAt) > time.Second {
			t.Errorf("while it waits it is %s, last seen at %v", h.Status, h.LastSeenAt)
		}
	})
}

// With so many hosts the next report is due later.
func TestAHostWhoseConnectionBreaksWhileItWaitsIsSuspectBeforeItsReportIsOverdue(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		for n := range 500 {
			more := api.HostReport{ID: storetest.ID(storetest.InstanceKind, 100+n), Name: fmt.Sprint("more", n), Pools: []api.Pool{}, Instances: []api.InstanceReport{}}
			expect.Value(s.store.Reports.Receive(t.Context(), store.Call{}, more))(t)
		}
		status := func() string {
			var h api.Host
			decode(t, s.ok(t, "GET", "/v1/hosts/a", ""), &h)
			return h.Status
		}
		ctx, breakOff := context.WithCancel(t.Context())
		poll := speaker{host: hostID, epoch: "1"}.request(ctx, "GET", "/v1/hosts/"+hostID+"/tasks?session=s&wait_seconds=300", "")
		go s.handler.ServeHTTP(httptest.NewRecorder(), poll)
		pass(time.Second)
		breakOff()
		pass(29 * time.Second)
		if got := status(); got != api.HostUp {
			t.Errorf("29 s later it is %s", got)
		}
		pass(2 * time.Second)
		if got := status(); got != api.HostSuspect {
			t.Errorf("31 s later, and 32 s after it was last seen, it is %s", got)
		}
	})
}

func TestHostThatWasFencedIsAskedNothingUntilItIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		tasks := "/v1/hosts/" + hostID + "/tasks?session=s"
		as := func(epoch string) speaker { return speaker{cert: certificate(hostID, "a"), epoch: epoch} }
		s.ok(t, "POST", "/v1/hosts/a/fence", `{"evidence":"off","even_if_up":true}`)
		for _, epoch := range []string{"1", "2"} {
			w := s.speak(t, as(epoch), "GET", tasks, "")
			wantError(t, w, api.CodeStaleEpoch)
			if !strings.Contains(w.Body.String(), `"epoch":2`) {
				t.Errorf("the refusal does not say the epoch: %s", w.Body)
			}
		}
		wantError(t, s.speak(t, as("2"), "POST", "/v1/hosts/"+hostID+"/report", reportOfA), api.CodeStaleEpoch)
		wantError(t, s.speak(t, as("1"), "POST", "/v1/hosts/"+hostID+"/rejoin", `{"epoch":1}`), api.CodeStaleEpoch)
		if w := s.speak(t, as("2"), "POST", "/v1/hosts/"+hostID+"/rejoin", `{"epoch":2}`); w.Code != http.StatusOK {
			t.Errorf("rejoin = %d %s", w.Code, w.Body)
		}
		if w := s.speak(t, as("2"), "GET", tasks, ""); w.Code != http.StatusOK {
			t.Errorf("tasks = %d %s", w.Code, w.Body)
		}
		wantError(t, s.speak(t, as("1"), "GET", tasks, ""), api.CodeStaleEpoch)
		wantError(t, s.speak(t, as("-1"), "GET", tasks, ""), api.CodeInvalidArgument)
	})
}

// A client may repeat the poll to a restarted registry without the host's knowledge.
func TestAHostThatHasNotReportedSinceTheStartIsToReportBeforeItIsAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := expect.Value(openSite(path))(t)
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", report)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = newSiteAt(t, path)
	own := speaker{cert: certificate(hostID, "a"), epoch: "1"}
	tasks := "/v1/hosts/" + hostID + "/tasks?session=s"
	w := s.speak(t, own, "GET", tasks, "")
	wantError(t, w, api.CodeRegistryUnavailable)
	if !strings.Contains(w.Body.String(), `"`+api.DetailReportFirst+`":true`) {
		t.Errorf("the refusal does not say that a report is wanted: %s", w.Body)
	}
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", report)
	if w := s.speak(t, own, "GET", tasks, ""); w.Code != http.StatusOK {
		t.Errorf("tasks = %d %s", w.Code, w.Body)
	}
}

func TestReportIsOfTheHostThatTheCertificateNames(t *testing.T) {
	s := newSite(t)
	path := "/v1/hosts/" + hostID + "/report"
	for name, tc := range map[string]struct {
		as         speaker
		path, body string
		code       api.Code
	}{
		"own":                    {speaker{cert: certificate(hostID, "a")}, path, report, ""},
		"other's id":             {speaker{cert: certificate(otherID, "a")}, path, report, api.CodeNotYourHost},
		"other's id in the body": {speaker{cert: certificate(otherID, "b")}, "/v1/hosts/" + otherID + "/report", report, api.CodeInvalidArgument},
		"other name":             {speaker{cert: certificate(hostID, "c")}, path, report, api.CodeNotYourHost},
		"header says another":    {speaker{cert: certificate(hostID, "a"), host: otherID}, path, report, api.CodeNotYourHost},
		"header repeats it":      {speaker{cert: certificate(hostID, "a"), host: hostID}, path, report, ""},
		"by its name":            {speaker{cert: certificate(hostID, "a")}, "/v1/hosts/a/report", report, api.CodeNotYourHost},
		"operator":               {speaker{cert: &mtls.Identity{Kind: mtls.KindOperator, Name: "ann", Role: httpjson.Fence}}, path, report, api.CodePermissionDenied},
		"local daemon":           {speaker{host: hostID}, path, report, ""},
		"local stranger":         {speaker{uid: 4242, host: hostID}, path, report, api.CodePermissionDenied},
		"local, for another":     {speaker{host: otherID}, path, report, api.CodeNotYourHost},
	} {
		w := s.speak(t, tc.as, "POST", tc.path, tc.body)
		if tc.code != "" {
			t.Run(name, func(t *testing.T) { wantError(t, w, tc.code) })
		} else if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A local daemon's changes have its token like over TLS.
func TestLocalDaemonThatWasFencedChangesNothing(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	s.ok(t, "POST", "/v1/hosts/a/fence", `{"evidence":"off","even_if_up":true}`)
	before := s.dump(t)
	for _, epoch := range []string{"1", "2"} {
		as := speaker{host: hostID, epoch: epoch}
		wantError(t, s.speak(t, as, "POST", "/v1/volumes:register",
			`{"id":"`+newID+`","name":"new","status":"available","type":"","bootable":false,"host":"a","location":`+location("new")+`}`), api.CodeStaleEpoch)
		wantError(t, s.speak(t, as, "POST", "/v1/migrations/"+moveID+"/transition", `{"from":["orphaned","starting"],"to":"started","op_id":"o",`+theirs+`}`), api.CodeStaleEpoch)
	}
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
}

func TestRefusalsOfWhatIsDrasticAreAudited(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	stranger := speaker{uid: 4242}
	reader := speaker{cert: &mtls.Identity{Kind: mtls.KindOperator, Name: "ann", Role: httpjson.Read}}
	for _, tc := range []struct {
		as                 speaker
		method, path, body string
		want               string
	}{
		{stranger, "POST", "/v1/hosts/a/fence", `{"evidence":"x"}`, "uid=4242 gid=0 pid=0 host.fence host/a permission_denied"},
		{reader, "POST", "/v1/migrations/" + moveID + "/abandon", `{}`, "operator=ann role=read migration.abandon migration/" + moveID + " permission_denied"},
		{speaker{}, "POST", "/v1/hosts/a/fence", `{`, "uid=0(root) gid=0 pid=0 host.fence host/a invalid_argument"},
		{speaker{}, "POST", "/v1/hosts/a/fence", `{"evidence":" "}`, "uid=0(root) gid=0 pid=0 host.fence host/a invalid_argument"},
		{reader, "DELETE", "/v1/attachments/" + attachedID + "?force=1", ``, "operator=ann role=read attachment.delete attachment/" + attachedID + " permission_denied"},
		{reader, "DELETE", "/v1/attachments/" + attachedID, ``, ""},
		{reader, "POST", "/v1/volumes", `{}`, ""},
	} {
		before := expect.Value(s.store.Trail.Events(t.Context(), 0))(t)
		if w := s.speak(t, tc.as, tc.method, tc.path, tc.body); w.Code < 400 {
			t.Errorf("%s %s was not refused: %d", tc.method, tc.path, w.Code)
		}
		got := ""
		for _, e := range expect.Value(s.store.Trail.Events(t.Context(), int64(len(before))))(t) {
			got += fmt.Sprint(e.Who, " ", e.What, " ", e.Object, " ", e.Result)
		}
		if got != tc.want {
			t.Errorf("%s %s %s: audited %q, want %q", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}

func TestStatusSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	s, old := newSite(t), filepath.Join(t.TempDir(), "old.db")
	s.fill(t)
	trouble := errors.New("the deny-list cannot be read")
	s.server.TLSTrouble = func() error { return trouble }
	parts := func() (lines []string, degraded bool) {
		var st api.Status
		decode(t, s.ok(t, "GET", "/v1/status", ""), &st)
		for _, p := range st.Parts {
			if (p.Status == "ok") != (p.Advice == "") {
				t.Errorf("part %+v", p)
			}
			lines = append(lines, p.Name+" "+p.Status)
		}
		return lines, st.Degraded
	}
	want := []string{"database ok", "hosts ok", "locks ok", "moves ok", "audit trail ok", "shared pools ok", "versions warn", "tls fail"}
	if got, degraded := parts(); cmp.Diff(want, got) != "" || degraded {
		t.Errorf("parts = %v, degraded %t", got, degraded)
	}
	if body := string(s.ok(t, "GET", "/v1/status", "")); !strings.Contains(body, "which lacks "+protocol.Pages) {
		t.Errorf("the status does not say what a host lacks: %s", body)
	}
	var hosts []api.Host
	decode(t, s.ok(t, "GET", "/v1/hosts", ""), &hosts)
	if h := hosts[0]; h.Protocol != 1 || !slices.Contains(h.Lacks, protocol.Pages) {
		t.Errorf("a host whose daemon announces nothing = %+v", h)
	}
	trouble = nil
	s.ok(t, "POST", "/v1/hosts/b/fence", `{"evidence":"off","even_if_up":true}`)
	expect.OK(t, sqlitedb.Backup(t.Context(), s.path, old))
	s.ok(t, "POST", "/v1/types", `{"name":"lost"}`)
	mark := s.store.Marks.Now()
	s = newSiteAt(t, old)
	s.server.TLSTrouble = func() error { return nil }
	forged := mark
	forged.Seq += 100
	if err := s.store.Marks.Observe(t.Context(), hostID, "a", forged); api.CodeOf(err) != api.CodeRegistryUnavailable {
		t.Errorf("a mark that was made up: %v", err)
	}
	want = []string{"database ok", "hosts fail", "locks ok", "moves ok", "audit trail ok", "shared pools ok", "versions ok", "tls ok"}
	if got, degraded := parts(); cmp.Diff(want, got) != "" || degraded {
		t.Errorf("with a mark that was made up parts = %v, degraded %t", got, degraded)
	}
	expect.OK(t, s.store.Marks.Observe(t.Context(), hostID, "a", mark))
	want = []string{"database fail", "hosts ok", "locks ok", "moves ok", "audit trail ok", "shared pools ok", "versions ok", "tls ok"}
	if got, degraded := parts(); cmp.Diff(want, got) != "" || !degraded {
		t.Errorf("parts = %v, degraded %t", got, degraded)
	}
	body := string(s.ok(t, "GET", "/v1/status", ""))
	for _, words := range []string{"1 up, 0 suspect, 1 fenced", "accept-restore", "1 volume is locked by a migration"} {
		if !strings.Contains(body, words) {
			t.Errorf("the status does not say %q: %s", words, body)
		}
	}
	wantError(t, s.do(t, "POST", "/v1/types", `{"name":"silver"}`), api.CodeRegistryUnavailable)
}

func TestAMoveThatHasStoppedOnItsHostIsInTheStatusOfTheSite(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	var moves []api.Migration
	decode(t, s.ok(t, "GET", "/v1/migrations", ""), &moves)
	m := moves[0]
	at := time.Date(2026, 1, 12, 10, 0, 0, 0, time.UTC)
	m.StoppedAt, m.Error = &at, api.Errorf(api.CodeNoSpace, "no room")
	report := api.HostReport{ID: hostID, Name: "a", Version: "1", BootID: "b", Epoch: 1, Instances: []api.InstanceReport{}, Migrations: []api.Migration{m}}
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", string(expect.Value(json.Marshal(report))(t)))
	var st api.Status
	decode(t, s.ok(t, "GET", "/v1/status", ""), &st)
	i := slices.IndexFunc(st.Parts, func(c api.Check) bool { return c.Name == "moves" })
	again, _ := m.Cures()
	if c := st.Parts[i]; c.Status != "fail" || !strings.Contains(c.Message, "2026-01-12T10:00:00Z") || !strings.Contains(c.Message, "no room") || !strings.Contains(c.Advice, again) {
		t.Errorf("the status has %+v, want when, why and %q", c, again)
	}
}

func TestADrainSaysWhichOfItsMovesHasStoppedHowThatIsMendedAndHowManyWait(t *testing.T) {
	s := newSite(t)
	id := s.fill(t)
	expect.OK(t, s.store.Drains.SetVolume(t.Context(), store.Call{}, id, api.DrainVolume{VolumeID: movingID, State: api.DrainVolumeMoving, MigrationID: moveID, Host: "a"}))
	moving := func() api.DrainVolume {
		t.Helper()
		var d api.Drain
		decode(t, s.ok(t, "GET", "/v1/drains/"+id, ""), &d)
		return d.Volumes[slices.IndexFunc(d.Volumes, func(v api.DrainVolume) bool { return v.VolumeID == movingID })]
	}
	if v := moving(); v.Error != nil {
		t.Errorf("a move that goes on has the error %v", v.Error)
	}
	var m api.Migration
	decode(t, s.ok(t, "GET", "/v1/migrations/"+moveID, ""), &m)
	at := time.Date(2026, 1, 12, 10, 0, 0, 0, time.UTC)
	m.StoppedAt, m.Error = &at, api.Errorf(api.CodeNoSpace, "no room")
	again, _ := m.Cures()
	report := api.HostReport{ID: hostID, Name: "a", Version: "1", BootID: "b", Epoch: 1, Instances: []api.InstanceReport{}, Migrations: []api.Migration{m}}
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", string(expect.Value(json.Marshal(report))(t)))
	v := moving()
	if v.Error == nil || v.Error.Code != api.CodeNoSpace {
		t.Fatalf("the error is %v, want no_space", v.Error)
	}
	for _, words := range []string{"2026-01-12T10:00:00Z", "no room", again, "2 pending volumes"} {
		if !strings.Contains(v.Error.Message, words) {
			t.Errorf("%q is not in %q", words, v.Error.Message)
		}
	}
}

// A long poll ends with its caller's connection.
func TestLongPollEndsWithItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "GET", "/v1/hosts/"+hostID+"/tasks?session=s2&wait_seconds=60", "", "")
		pass(10 * time.Second)
		if p.over() {
			t.Fatal("the poll has ended")
		}
		p.end()
		pass(time.Millisecond)
		if !p.over() {
			t.Error("the poll goes on")
		}
		pass(relay.DefaultAbsence)
		if s.relay.Present(hostID) {
			t.Error("the host still counts as there")
		}
	})
}

// A daemon derives the keys of its requests from the key of its task.
func TestTheKeysOfDaemonsMayBeLongerThanThoseOfClients(t *testing.T) {
	s := newSite(t)
	people, daemon := speaker{}, speaker{cert: certificate(hostID, "a"), epoch: "1"}
	for name, tc := range map[string]struct {
		as    speaker
		chars int
		want  bool
	}{
		"people's longest": {people, 96, true}, "too long for people": {people, 97, false},
		"a daemon's, made of the longest": {daemon, 96 + len(".") + len(hostID), true}, "too long for a daemon": {daemon, 193, false},
	} {
		tc.as.key = strings.Repeat("k", tc.chars)
		w := s.speak(t, tc.as, "POST", "/v1/events", `{"at":"2026-01-01T00:00:00Z","what":"guard.set","object":"host/`+hostID+`"}`)
		if refused := strings.Contains(w.Body.String(), "invalid_argument"); refused == tc.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
