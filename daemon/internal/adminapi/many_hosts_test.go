// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// probe returns a path of the route that can be requested.
func probe(d *routes.Declaration) string {
	return strings.NewReplacer("{", "", "}", "").Replace(d.Path)
}

func TestReadsAreAnsweredFromMemoryWhileTheRegistryIsAway(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/hosts": "beta", "/v1/hosts/alpha": "alpha", "/v1/pools": "slow", "/v1/pools/slow": "slow", "/v1/pools/fast?host=i": `"host":"beta"`,
		"/v1/types": "default", "/v1/types/default": "default", "/v1/policies": "multiattach", "/v1/policies/multiattach": "multiattach",
		"/v1/volumes": "logs", "/v1/volumes/data": "11112222", "/v1/volumes/11113": "logs",
		"/v1/instances": "web", "/v1/instances/web": "aaaabbbb", "/v1/attachments": "a2", "/v1/attachments/a1": "11112222",
		"/v1/attachments?volume=data&instance=web": "a1",
	} {
		status, body := askOf(t, newServer(t, nowhere, remembers()), "GET", path, "")
		var answer struct {
			Stale bool    `json:"stale"`
			Age   float64 `json:"age_seconds"`
		}
		err := json.Unmarshal([]byte(body), &answer)
		if err != nil || status != http.StatusOK || !answer.Stale || answer.Age < 3599 || answer.Age > 3700 || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d %s (%v), want a stale answer of an hour ago with %s", path, status, body, err, want)
		}
	}
	if _, body := askOf(t, newServer(t, nowhere, remembers()), "GET", "/v1/attachments?volume=data", ""); strings.Contains(body, "a2") {
		t.Errorf("the filter is overlooked: %s", body)
	}
}

func TestWhatIsNotRememberedIsSaidToBe(t *testing.T) {
	for path, code := range map[string]api.Code{
		"/v1/volumes/other": api.CodeRegistryUnavailable, "/v1/pools/other": api.CodeRegistryUnavailable, "/v1/attachments?volume=other": api.CodeRegistryUnavailable,
		"/v1/volumes/1111": api.CodeInvalidArgument, "/v1/pools/fast": api.CodeInvalidArgument, "/v1/volumes?colour=red": api.CodeInvalidArgument,
		"/v1/volumes?after=11112222": api.CodeRegistryUnavailable, // only the registry has the rest of a list that it has begun
		"/v1/events":                 api.CodeRegistryUnavailable, "/v1/drains": api.CodeRegistryUnavailable,
	} {
		wantError(t, newServer(t, nowhere, remembers()), "GET", path, code)
	}
}

// No stored state answers a change; only the registry does.
func TestChangesAreNotAnsweredFromMemory(t *testing.T) {
	s := newServer(t, nowhere, remembers())
	n := 0
	for _, d := range routes.All() {
		if d.Daemon != nil && d.Daemon.Part.ByRegistry() && d.Access != httpjson.Read {
			n++
			wantError(t, s, d.Method, probe(d), api.CodeRegistryUnavailable)
		}
	}
	if n < 10 {
		t.Errorf("only %d routes were tried", n)
	}
}

func TestARegistryThatAnswersIsNotOverruledByMemory(t *testing.T) {
	socket := serveRegistry(t, func(w http.ResponseWriter, _ *http.Request) {
		httpjson.WriteError(w, api.Errorf(api.CodeNotYourHost, "that is another host's"))
	})
	wantError(t, newServer(t, socket, remembers()), "GET", "/v1/volumes/data", api.CodeNotYourHost)
}

// The caller then repeats the request with the same key, and gets the result.
func TestARegistryThatDiesWithARequestMayHaveDoneIt(t *testing.T) {
	socket := serveRegistry(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if e := wantError(t, newServer(t, socket, nil), "POST", "/v1/types", api.CodeRegistryUnavailable); e.Details["maybe_done"] != true {
		t.Errorf("answered %+v, want maybe_done", e)
	}
	if e := wantError(t, newServer(t, nowhere, nil), "POST", "/v1/types", api.CodeRegistryUnavailable); e.Details["maybe_done"] != nil {
		t.Errorf("answered %+v, and nothing was sent", e)
	}
}

func TestAStreamOfTheRegistryArrivesLineByLine(t *testing.T) {
	more := make(chan struct{})
	socket := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		stream, err := httpjson.NewStream(w)
		if err != nil {
			t.Error(err)
			return
		}
		for n := range 2 {
			if err := stream.Send(api.Event{Seq: int64(n)}); err != nil {
				t.Error(err)
			}
			select {
			case <-more:
			case <-r.Context().Done():
			}
		}
	})
	r, w := newServer(t, socket, nil), newLines()
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events?follow=1", http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		r.Handler(everybody).ServeHTTP(w, req)
	}()
	for n := range 2 {
		if line := <-w.lines; !strings.Contains(line, fmt.Sprintf(`"seq":%d`, n)) {
			t.Errorf("line %d is %q", n, line)
		}
		more <- struct{}{}
	}
	<-done
}

// lines is a reader of a stream that receives each write at once.
type lines struct {
	http.ResponseWriter
	header http.Header
	lines  chan string
}

func newLines() *lines { return &lines{header: http.Header{}, lines: make(chan string)} }

func (l *lines) Header() http.Header { return l.header }
func (l *lines) WriteHeader(int)     {}
func (l *lines) Flush()              {}
func (l *lines) Write(b []byte) (int, error) {
	l.lines <- string(b)
	return len(b), nil
}

func TestAFencedHostBeginsNothing(t *testing.T) {
	s := newServer(t, nowhere, fenced)
	n := 0
	for _, d := range routes.All() {
		if d.Daemon != nil && !d.Daemon.Part.ByRegistry() && d.Access != httpjson.Read {
			n++
			wantError(t, s, d.Method, probe(d), api.CodeStaleEpoch)
		}
	}
	if n < 15 {
		t.Errorf("only %d routes were tried", n)
	}
}

func TestATaskMayCallWhatTheDaemonAnswersAndNothingElse(t *testing.T) {
	s := newServer(t, nowhere, fenced) // so that permitted calls are refused for another reason
	for _, d := range routes.All() {
		if d.Daemon == nil || d.Daemon.Part == routes.Answers && d.Access == httpjson.Read {
			continue
		}
		a := s.Perform(t.Context(), api.Task{ID: "op", Who: "operator=eve", Method: d.Method, Path: probe(d), Body: json.RawMessage(`{}`)})
		want := api.CodePermissionDenied
		if d.Daemon.Part == routes.Answers {
			want = api.CodeStaleEpoch
		}
		if e := expect.Refusal(a.Body); e == nil || e.Code != want || a.Status != want.HTTPStatus() {
			t.Errorf("%s: %d %.200s, want %s", d, a.Status, a.Body, want)
		}
	}
	if a := s.Perform(t.Context(), api.Task{ID: "op", Method: "GET", Path: "/v1/version"}); a.Status != http.StatusOK || !json.Valid(a.Body) {
		t.Errorf("a read: %d %s", a.Status, a.Body)
	}
	if a := s.Perform(t.Context(), api.Task{ID: "op", Method: "GET", Path: "://"}); a.Status != http.StatusBadRequest {
		t.Errorf("no path: %d %s", a.Status, a.Body)
	}
}

// The id identifies a task that is sent twice.
func TestATaskIsCalledUnderItsID(t *testing.T) {
	s := newServer(t, nowhere, nil)
	a := s.Perform(t.Context(), api.Task{ID: "no key at all", Method: "POST", Path: "/v1/volumes", Body: json.RawMessage(`{"name":"a","size_bytes":512}`)})
	if !strings.Contains(string(a.Body), api.IdempotencyKeyHeader) {
		t.Errorf("answer %d %s, want one that refuses the key", a.Status, a.Body)
	}
}

// The host learns of its fence while a request waits for its operation.
func TestARequestWhoseOperationWasHaltedIsToldWhy(t *testing.T) {
	socket := serveRegistry(t, func(w http.ResponseWriter, _ *http.Request) {
		httpjson.WriteError(w, api.Errorf(api.CodeStaleEpoch, "fenced").With("epoch", 2))
	})
	s := newServer(t, socket, memory{"uplink.json": `{"epoch":1}`})
	h := s.admitted(func(_ http.ResponseWriter, r *http.Request) error {
		if err := s.Uplink.Refresh(r.Context()); api.CodeOf(err) != api.CodeStaleEpoch {
			t.Errorf("the report is answered with %v", err)
		}
		return fmt.Errorf("wait for op: %w", op.ErrStopped)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	if err := h(httptest.NewRecorder(), r); api.CodeOf(err) != api.CodeStaleEpoch {
		t.Errorf("got %v, want stale_epoch", err)
	}
}

// The guest has released the disk; only the registry does not know it yet.
func TestAQueuedReleaseIsShownAsDetaching(t *testing.T) {
	known := []api.Attachment{{ID: "a1", State: api.AttachmentAttached}, {ID: "a2", State: api.AttachmentAttached}}
	v := uplink.View{Attachments: known, Volumes: []api.Volume{{ID: "v", Attachments: known}}}
	shown := letGo(v, []api.Attachment{{ID: "a2"}})
	for _, atts := range [][]api.Attachment{shown.Attachments, shown.Volumes[0].Attachments} {
		if atts[0].State != api.AttachmentAttached || atts[1].State != api.AttachmentDetaching {
			t.Errorf("shown are %+v", atts)
		}
	}
	if known[1].State != api.AttachmentAttached || v.Volumes[0].Attachments[1].State != api.AttachmentAttached {
		t.Error("what is remembered was changed")
	}
}

// The registry stops right after a move, and the view is older than the move.
func TestAVolumeThatWasMovedSinceIsShownWhereItIs(t *testing.T) {
	before, now := api.Location{Path: "/old/v.raw"}, api.Location{Path: "/new/v.raw"}
	known := []api.Attachment{{ID: "a1", VolumeID: "v", Location: before}, {ID: "a2", VolumeID: "w", Location: before}}
	v := uplink.View{Attachments: known, Volumes: []api.Volume{{ID: "v", Location: before, Attachments: known[:1]}, {ID: "w", Location: before}}}
	shown := asMoved(v, map[string]api.Location{"v": now})
	if shown.Volumes[0].Location != now || shown.Volumes[0].Attachments[0].Location != now || shown.Attachments[0].Location != now {
		t.Errorf("the volume is shown as %+v, %+v", shown.Volumes[0], shown.Attachments[0])
	}
	if shown.Volumes[1].Location != before || shown.Attachments[1].Location != before {
		t.Errorf("another volume is shown as %+v, %+v", shown.Volumes[1], shown.Attachments[1])
	}
	if v.Volumes[0].Location != before || known[0].Location != before {
		t.Error("what is remembered was changed")
	}
}

func TestAListThatIsEmptyInMemoryIsAList(t *testing.T) {
	empty := memory{"registry-view.json": `{"read_at":"2026-01-01T00:00:00Z"}`}
	if _, body := askOf(t, newServer(t, nowhere, empty), "GET", "/v1/volumes", ""); !strings.Contains(body, `"volumes":[]`) {
		t.Errorf("the list is %s", body)
	}
}

// The caller was told long ago that it may have been done, and may have made other changes since.
func TestALateTaskIsNotBegun(t *testing.T) {
	journal := optest.NewJournal()
	runner := optest.NewRunner(journal)
	attachments := attach.New(attach.Config{}, attach.Ports{}, runner, journal, nil, slog.New(slog.DiscardHandler))
	_, err := journal.Create(t.Context(), op.Op{ID: "begun", Kind: attachments.Plans()[0].Kind, CreatedAt: time.Now()})
	expect.OK(t, err)
	s := newServer(t, nowhere, nil)
	s.Runner = runner
	ask := func(id string, late bool) string {
		return string(s.Perform(t.Context(), api.Task{ID: id, Late: late, Method: "GET", Path: "/v1/version"}).Body)
	}
	if got := ask("unknown", true); !strings.Contains(got, "too old to be begun") || !strings.Contains(got, string(api.CodeHypervisorUnavailable)) {
		t.Errorf("a late task that is not known: %s", got)
	}
	for id, late := range map[string]bool{"begun": true, "unknown": false} {
		if got := ask(id, late); !strings.Contains(got, "version") {
			t.Errorf("%s, late %t: %s", id, late, got)
		}
	}
}

// awayRegistry does not answer.
type awayRegistry struct{ Registry }

func (awayRegistry) Volume(context.Context, string) (api.Volume, error) {
	return api.Volume{}, api.Errorf(api.CodeRegistryUnavailable, "nobody listens there")
}

func unknownHost(context.Context) (move.Host, error) {
	return move.Host{}, api.Errorf(api.CodeRegistryUnavailable, "nobody listens there")
}

// Which copy is good is asked after failures, so a daemon that has not reached the registry since
// its start must answer too.
func TestWhichIsAnsweredWithoutTheRegistryAndSaysSo(t *testing.T) {
	s := newServer(t, nowhere, remembers())
	s.Registry = awayRegistry{}
	fake, records := hvtest.New(), optest.NewJournal()
	s.Migrations = migrate.New(move.Config{}, move.Ports{HV: fake}, optest.NewRunner(records), records, unknownHost, slog.New(slog.DiscardHandler))
	status, body := askOf(t, s, "GET", "/v1/volumes/data/which", "")
	var answer struct{ Which api.Which }
	err := json.Unmarshal([]byte(body), &answer)
	w := answer.Which
	if err != nil || status != http.StatusOK || w.VolumeID != "11112222" || w.Registry != nil || w.Agree || !strings.Contains(w.Explanation, "the registry does not answer") {
		t.Errorf("%d %s (%v)", status, body, err)
	}
	wantError(t, s, "GET", "/v1/volumes/other/which", api.CodeRegistryUnavailable)
}

// attachedRegistry has an attached volume.
type attachedRegistry struct{ Registry }

func (attachedRegistry) Volume(context.Context, string) (api.Volume, error) {
	return api.Volume{
		ID: "11112222", Name: "data", Location: api.Location{Path: "/pool/data.raw", Format: api.FormatRaw},
		Attachments: []api.Attachment{{ID: "a", InstanceID: "i", State: api.AttachmentAttached}},
	}, nil
}

// silentHypervisor does not answer.
type silentHypervisor struct{ hv.Hypervisor }

func (silentHypervisor) Domain(context.Context, string) (*hv.Domain, error) {
	return nil, hv.ErrUnavailable
}

// Without libvirt the records are still shown, and no copy is called good.
func TestWhichShowsTheRecordsWithoutLibvirtAndSaysSo(t *testing.T) {
	s := newServer(t, nowhere, nil)
	s.Registry = attachedRegistry{}
	records := optest.NewJournal()
	s.Migrations = migrate.New(move.Config{}, move.Ports{HV: silentHypervisor{}}, optest.NewRunner(records), records, unknownHost, slog.New(slog.DiscardHandler))
	status, body := askOf(t, s, "GET", "/v1/volumes/data/which", "")
	var answer struct{ Which api.Which }
	err := json.Unmarshal([]byte(body), &answer)
	w := answer.Which
	if err != nil || status != http.StatusOK || w.Registry == nil || len(w.Journal) != 1 || w.Authoritative != nil || w.Agree || !strings.Contains(w.Explanation, "without libvirt nobody can tell") {
		t.Errorf("%d %s (%v)", status, body, err)
	}
}

// stillRegistry has a volume that does not move, and no attachment.
type stillRegistry struct{ Registry }

func (stillRegistry) Volume(context.Context, string) (api.Volume, error) {
	return api.Volume{ID: "11112222", Name: "data"}, nil
}

func (stillRegistry) Attachment(_ context.Context, ref string) (api.Attachment, error) {
	return api.Attachment{}, api.Errorf(api.CodeNotFound, "no attachment %q", ref)
}

func TestACancelOfAVolumeThatStandsStillSaysSo(t *testing.T) {
	s, _ := newMover(t)
	s.Registry = stillRegistry{}
	status, body := askOf(t, s, "POST", "/v1/attachments/data/migration:cancel", "")
	if status != http.StatusConflict || !strings.Contains(body, string(api.CodeNoMigration)) || !strings.Contains(body, "volume data is not being moved") {
		t.Errorf("%d %s", status, body)
	}
}
