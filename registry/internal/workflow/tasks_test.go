// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

func migrateTask() api.Task {
	return api.Task{
		ID: "op-1", Host: "a", Who: "operator/anna", Method: "POST", Path: "/v1/volumes/root/migrate?wait=0", Body: json.RawMessage(`{"to_pool":"slow"}`),
		Needs: []string{"flight", "speed"},
	}
}

var accepted = api.TaskAnswer{Status: 202, Body: json.RawMessage(`{"op":{}}`)}

// asItIs returns the request of a caller with the same names as the task.
func asItIs(in api.Task) TaskRequest {
	return TaskRequest{Method: in.Method, Path: in.Path, Body: in.Body}
}

func create(t *testing.T, s *Store, in api.Task) (api.Task, *api.TaskAnswer) {
	t.Helper()
	task, answer, err := s.Tasks.Create(t.Context(), nobody, in, asItIs(in))
	if err != nil {
		t.Fatal(err)
	}
	return task, answer
}

func refuseTask(t *testing.T, s *Store, in api.Task) error {
	t.Helper()
	return unchanged(t, s, func() error { _, _, err := s.Tasks.Create(t.Context(), nobody, in, asItIs(in)); return err })
}

func taskState(t *testing.T, s *Store, id string) string {
	t.Helper()
	task, _, err := s.Tasks.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return task.State
}

func ids(tasks []api.Task) []string {
	out := make([]string, 0, len(tasks))
	for _, task := range tasks {
		out = append(out, task.ID)
	}
	return out
}

func TestATaskFromItsBeginningToItsAnswer(t *testing.T) {
	s := newSite(t)
	task, answer := create(t, s, migrateTask())
	want := migrateTask()
	want.State, want.CreatedAt = api.TaskQueued, task.CreatedAt
	if diff := cmp.Diff(want, task); diff != "" || answer != nil || task.CreatedAt.IsZero() {
		t.Errorf("task (-want +got), answer %v:\n%s", answer, diff)
	}
	if pending := must(s.Tasks.Pending(t.Context(), hostA))(t); len(pending) != 1 || pending[0].State != api.TaskQueued {
		t.Errorf("pending = %+v", pending)
	}
	taken := must(s.Tasks.Take(t.Context(), as(hostA), hostA, []string{"op-1"}))(t)
	if len(taken) != 1 || taken[0].State != api.TaskTaken || string(taken[0].Body) != string(want.Body) {
		t.Errorf("taken = %+v", taken)
	}
	if err := s.Tasks.Answer(t.Context(), as(hostA), hostA, "op-1", accepted); err != nil {
		t.Fatal(err)
	}
	task, answer, err := s.Tasks.Get(t.Context(), "op-1")
	if err != nil || task.State != api.TaskDone || answer == nil || cmp.Diff(accepted, *answer) != "" {
		t.Errorf("task = %+v, answer = %+v (%v)", task, answer, err)
	}
	if pending := must(s.Tasks.Pending(t.Context(), hostA))(t); len(pending) != 0 {
		t.Errorf("pending = %+v", pending)
	}
	var steps []string
	for _, e := range must(s.Trail.Events(t.Context(), 4))(t) {
		steps = append(steps, e.What+" "+e.From+">"+e.To)
		if e.Object != "task/op-1" || e.OpID != "op-1" || e.Host != "a" {
			t.Errorf("event = %+v", e)
		}
	}
	if diff := cmp.Diff([]string{"task.queued >queued", "task.taken queued>taken", "task.done taken>done"}, steps); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTheSameTaskIsFoundAtItsHostWhoeverAsks(t *testing.T) {
	s := newSite(t)
	create(t, s, migrateTask())
	again := migrateTask()
	again.Who, again.Host = "operator/otto", "b"
	if task, answer := create(t, s, again); task.Host != "a" || task.Who != "operator/anna" || answer != nil {
		t.Errorf("task = %+v, answer = %v", task, answer)
	}
	must(s.Tasks.Take(t.Context(), nobody, "a", []string{"op-1"}))(t)
	if err := s.Tasks.Answer(t.Context(), nobody, "a", "op-1", accepted); err != nil {
		t.Fatal(err)
	}
	if task, answer := create(t, s, again); task.State != api.TaskDone || answer == nil || answer.Status != accepted.Status {
		t.Errorf("task = %+v, answer = %v", task, answer)
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	s := newSite(t)
	create(t, s, migrateTask())
	for name, tc := range map[string]struct {
		edit func(*api.Task)
		code api.Code
	}{
		"another method":     {func(in *api.Task) { in.Method = "DELETE" }, api.CodeIdempotencyMismatch},
		"another path":       {func(in *api.Task) { in.Path += "1" }, api.CodeIdempotencyMismatch},
		"another body":       {func(in *api.Task) { in.Body = json.RawMessage(`{}`) }, api.CodeIdempotencyMismatch},
		"no body":            {func(in *api.Task) { in.Body = nil }, api.CodeIdempotencyMismatch},
		"unknown host":       {func(in *api.Task) { in.ID, in.Host = "op-2", "nowhere" }, api.CodeNotFound},
		"no id":              {func(in *api.Task) { in.ID = "" }, api.CodeInvalidArgument},
		"a read":             {func(in *api.Task) { in.Method = "GET" }, api.CodeInvalidArgument},
		"no path":            {func(in *api.Task) { in.Path = "" }, api.CodeInvalidArgument},
		"control characters": {func(in *api.Task) { in.Path = "/v1/\n" }, api.CodeInvalidArgument},
		"more than 1 MiB":    {func(in *api.Task) { in.Body = json.RawMessage(strings.Repeat(" ", 1<<20+1)) }, api.CodeInvalidArgument},
	} {
		in := migrateTask()
		tc.edit(&in)
		if err := refuseTask(t, s, in); api.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
}

func TestPendingTasksAreThoseOfTheHostOldestFirst(t *testing.T) {
	s := newSite(t)
	for _, id := range []string{"op-3", "op-1", "op-2", "op-4"} {
		in := migrateTask()
		in.ID = id
		if id == "op-4" {
			in.Host = "b"
		}
		create(t, s, in)
	}
	must(s.Tasks.Take(t.Context(), nobody, "a", []string{"op-1"}))(t)
	if diff := cmp.Diff([]string{"op-3", "op-1", "op-2"}, ids(must(s.Tasks.Pending(t.Context(), hostA))(t))); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
}

func TestAHostTakesWhatIsItsOwnAndUnansweredAndMayTakeItAgain(t *testing.T) {
	s := newSite(t)
	for _, id := range []string{"op-1", "op-2", "op-3", "op-4"} {
		in := migrateTask()
		if in.ID = id; id == "op-4" {
			in.Host = "b"
		}
		create(t, s, in)
	}
	all := []string{"op-1", "op-2", "op-3", "op-4", "gone"}
	if !must(s.Tasks.Withdraw(t.Context(), nobody, "op-2"))(t) {
		t.Error("a queued task was not withdrawn")
	}
	for range 2 {
		if diff := cmp.Diff([]string{"op-1", "op-3"}, ids(must(s.Tasks.Take(t.Context(), as(hostA), hostA, all))(t))); diff != "" {
			t.Errorf("taken (-want +got):\n%s", diff)
		}
	}
	if err := s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", accepted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"op-3"}, ids(must(s.Tasks.Take(t.Context(), as(hostA), hostA, all))(t))); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if taskState(t, s, "op-4") != api.TaskQueued {
		t.Error("a host took the task of another")
	}
}

func TestTheFirstAnswerStands(t *testing.T) {
	s := newSite(t)
	create(t, s, migrateTask())
	must(s.Tasks.Take(t.Context(), nobody, "a", []string{"op-1"}))(t)
	wantCode(t, unchanged(t, s, func() error { return s.Tasks.Answer(t.Context(), as(hostB), hostB, "op-1", accepted) }), api.CodeNotYourHost, "host a")
	wantCode(t, s.Tasks.Answer(t.Context(), nobody, hostA, "gone", accepted), api.CodeNotFound, "gone")
	wantCode(t, s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", api.TaskAnswer{}), api.CodeInvalidArgument, "status 0")
	if err := s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", accepted); err != nil {
		t.Fatal(err)
	}
	if err := unchanged(t, s, func() error {
		if err := s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", accepted); err != nil {
			return err
		}
		return s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", api.TaskAnswer{Status: 500})
	}); err != nil {
		t.Error(err)
	}
}

func TestAWithdrawnTaskIsQueuedAgainWhereItsCallerSaysNow(t *testing.T) {
	s := newSite(t)
	create(t, s, migrateTask())
	for range 2 {
		if !must(s.Tasks.Withdraw(t.Context(), nobody, "op-1"))(t) {
			t.Error("a queued task was not withdrawn")
		}
	}
	wantCode(t, s.Tasks.Answer(t.Context(), nobody, hostA, "op-1", accepted), api.CodeConflict, "withdrawn")
	again := migrateTask()
	again.Host = "b"
	if task, _ := create(t, s, again); task.State != api.TaskQueued || task.Host != "b" {
		t.Errorf("task = %+v", task)
	}
	must(s.Tasks.Take(t.Context(), nobody, "b", []string{"op-1"}))(t)
	if must(s.Tasks.Withdraw(t.Context(), nobody, "op-1"))(t) || taskState(t, s, "op-1") != api.TaskTaken {
		t.Error("a task that was taken was withdrawn")
	}
	wantCode(t, second(s.Tasks.Withdraw(t.Context(), nobody, "gone")), api.CodeNotFound, "gone")
}

func TestOfTakeAndWithdrawOneWins(t *testing.T) {
	s := newSite(t)
	for n := range 50 {
		in := migrateTask()
		in.ID = id("op", n)
		create(t, s, in)
		var (
			taken     []api.Task
			withdrawn bool
			wg        sync.WaitGroup
		)
		wg.Go(func() { taken, _ = s.Tasks.Take(t.Context(), nobody, hostA, []string{in.ID}) })
		wg.Go(func() { withdrawn, _ = s.Tasks.Withdraw(t.Context(), nobody, in.ID) })
		wg.Wait()
		if (len(taken) == 1) == withdrawn {
			t.Fatalf("taken = %v, withdrawn = %v", ids(taken), withdrawn)
		}
	}
}

func TestTasksOfARegistryThatDied(t *testing.T) {
	s, reopen := reopenable(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a")))(t)
	for _, id := range []string{"op-1", "op-2"} {
		in := migrateTask()
		in.ID = id
		create(t, s, in)
	}
	must(s.Tasks.Take(t.Context(), nobody, "a", []string{"op-2"}))(t)
	s = reopen()
	if one, two := taskState(t, s, "op-1"), taskState(t, s, "op-2"); one != api.TaskWithdrawn || two != api.TaskTaken {
		t.Errorf("states = %s, %s; want the queued one withdrawn and the taken one as it was", one, two)
	}
	if e := lastEvent(t, s); e.What != "task.withdrawn" || e.Who != "volferry-registry" {
		t.Errorf("event = %+v", e)
	}
}

// Otherwise neither the registry would start nor accept-restore would work.
func TestARestoredRegistryOpensWithTasksThatWereQueuedBeforeAHostProvedIt(t *testing.T) {
	dir := t.TempDir()
	lost, backup := filepath.Join(dir, "lost.db"), filepath.Join(dir, "backup.db")
	open := func(path string) *Store { return must(Open(t.Context(), path, store.Options{}))(t) }
	s := open(lost)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a")))(t)
	expect.OK(t, sqlitedb.Backup(t.Context(), lost, backup))
	create(t, s, migrateTask())
	mark := must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a")))(t).Mark
	expect.OK(t, s.Close())

	s = open(backup)
	in := migrateTask()
	in.ID = "op-2"
	create(t, s, in)
	knows := reportOf(hostA, "a")
	knows.Mark = mark
	_, err := s.Reports.Receive(t.Context(), nobody, knows)
	wantCode(t, err, api.CodeRegistryUnavailable, "restored from a backup")
	if _, restored := s.ReadOnly(); !restored {
		t.Fatal("the host has not proved that the database was restored")
	}
	expect.OK(t, s.Close())
	s = open(backup)
	must(s.Marks.AcceptRestore(t.Context(), nobody, store.RestoreAcceptance{Evidence: "compared"}))(t)
	expect.OK(t, s.Close())
	s = open(backup)
	defer func() { expect.OK(t, s.Close()) }()
	if got := taskState(t, s, "op-2"); got != api.TaskWithdrawn {
		t.Errorf("the task is %s", got)
	}
}

func TestOldTasksAreForgottenUnlessTheyAreOpen(t *testing.T) {
	later(t, func(t *testing.T, s *Store, pass func(time.Duration)) {
		for _, id := range []string{"done", "taken", "withdrawn"} {
			in := migrateTask()
			in.ID = id
			create(t, s, in)
		}
		must(s.Tasks.Take(t.Context(), nobody, "a", []string{"done", "taken"}))(t)
		must(s.Tasks.Withdraw(t.Context(), nobody, "withdrawn"))(t)
		if err := s.Tasks.Answer(t.Context(), nobody, "a", "done", accepted); err != nil {
			t.Fatal(err)
		}
		count := func() int { return len(dump(t.Context(), t, s)["tasks"]) }
		if err := s.Housekeep(t.Context()); err != nil || count() != 3 {
			t.Errorf("tasks = %d (%v), want all", count(), err)
		}
		pass(ledger.KeepAnswers + time.Hour)
		if err := s.Housekeep(t.Context()); err != nil || count() != 1 {
			t.Errorf("tasks = %d (%v), want the open one", count(), err)
		}
		if taskState(t, s, "taken") != api.TaskTaken {
			t.Error("the open task was forgotten")
		}
	})
}

func TestAStaleHostTakesAndAnswersNothing(t *testing.T) {
	s := newSite(t)
	create(t, s, migrateTask())
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	wantStale(t, second(s.Tasks.Take(t.Context(), as(hostA), hostA, []string{"op-1"})), 2)
	wantStale(t, s.Tasks.Answer(t.Context(), as(hostA), hostA, "op-1", accepted), 2)
}

func TestATaskThatWasTakenLongAgoIsGivenOutAsLate(t *testing.T) {
	later(t, func(t *testing.T, s *Store, pass func(time.Duration)) {
		for _, id := range []string{"old", "queued", "again"} {
			in := migrateTask()
			in.ID = id
			create(t, s, in)
		}
		must(s.Tasks.Withdraw(t.Context(), nobody, "again"))(t)
		late := func() map[string]bool {
			out := map[string]bool{}
			for _, task := range must(s.Tasks.Take(t.Context(), nobody, "a", []string{"old", "queued", "again"}))(t) {
				out[task.ID] = task.Late
			}
			return out
		}
		must(s.Tasks.Take(t.Context(), nobody, "a", []string{"old"}))(t)
		pass(lateAfter + time.Minute)
		again := migrateTask()
		again.ID = "again"
		create(t, s, again)
		if diff := cmp.Diff(map[string]bool{"old": true, "queued": false, "again": false}, late()); diff != "" {
			t.Errorf("late, of what is taken now (-want +got):\n%s", diff)
		}
		// A task that is requested again is new again.
		if diff := cmp.Diff(map[string]bool{"old": true, "queued": true, "again": false}, late()); diff != "" {
			t.Errorf("late, when given out again (-want +got):\n%s", diff)
		}
	})
}

func TestAHostDeletesAnothersVolumeIfAnOperatorHasAskedItTo(t *testing.T) {
	s := newSite(t)
	common := id(volumeKind, 3)
	in := api.VolumeRegister{ID: common, Name: "common", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/common")}
	must(s.Volumes.Register(t.Context(), nobody, in))(t)
	forget := func() error { return second(s.Volumes.Forget(t.Context(), as(hostB), common)) }
	for n, path := range []string{"/v1/volumes/" + id(volumeKind, 9), "/v1/volumes/" + common + "0", "/v1/volumes/" + common + "?force=1"} {
		wantCode(t, forget(), api.CodeNotYourHost, "in the care of host a")
		task := string(rune('a' + n))
		create(t, s, api.Task{ID: task, Host: "b", Who: "operator/anna", Method: "DELETE", Path: path})
		must(s.Tasks.Take(t.Context(), as(hostB), hostB, []string{task}))(t)
	}
	if err := forget(); err != nil {
		t.Error(err)
	}
}
