// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/retry"
)

func TestAReportSaysWhatPoolsAndEpochAre(t *testing.T) {
	bubble(t, func(w *world) {
		w.moving(api.Migration{ID: "m"})
		w.start()
		pass(time.Minute)
		r := w.report()
		got := map[string][2]bool{}
		for _, p := range r.Pools {
			got[p.Name] = [2]bool{p.Shared, p.Multiattach}
		}
		want := map[string][2]bool{"local": {false, true}, "nfs": {true, true}, "san": {true, true}, "ceph": {false, false}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pools: shared, multiattach (-want +got)\n%s", diff)
		}
		if r.Epoch != 1 || r.Mark == nil || r.Mark.Seq != 1 || len(r.Migrations) != 1 || len(r.Instances) != 2 {
			t.Errorf("report %+v", r)
		}
		w.kill()
	})
}

func TestEpochAndMarkOutliveTheProcess(t *testing.T) {
	running(t, func(w *world) {
		w.kill()
		w.registry.reports = nil
		w.start()
		synctest.Wait()
		if first := w.registry.reports[0]; first.Epoch != 1 || first.Mark == nil || first.Mark.Hash != "1" {
			t.Errorf("the first report after a restart has epoch %d and mark %v", first.Epoch, first.Mark)
		}
	})
}

func TestAnEpochThatCannotBeKeptIsNotUsed(t *testing.T) {
	bubble(t, func(w *world) {
		w.open()
		w.must(os.RemoveAll(w.dir))
		if err := w.up.Refresh(w.t.Context()); err == nil {
			t.Error("a report counts whose epoch could not be kept")
		}
		if _, epoch := w.up.Token(); epoch != 0 || w.up.Up() {
			t.Errorf("epoch %d is in use (up: %t)", epoch, w.up.Up())
		}
	})
}

func TestReportsComeOftenerWhileSomethingMovesAndSoonAfterAChange(t *testing.T) {
	bubble(t, func(w *world) {
		count := func(d time.Duration) int {
			w.registry.Lock()
			before := len(w.registry.reports)
			w.registry.Unlock()
			pass(d)
			w.registry.Lock()
			defer w.registry.Unlock()
			return len(w.registry.reports) - before
		}
		w.start()
		pass(time.Minute + time.Millisecond)
		if n := count(time.Minute); n != 12 {
			t.Errorf("%d reports in a quiet minute, want 12", n)
		}
		w.moving(api.Migration{ID: "m"})
		pass(10 * time.Second)
		if n := count(time.Minute); n != 60 {
			t.Errorf("%d reports in a minute with a migration, want 60", n)
		}
		w.moving()
		pass(10 * time.Second)
		w.up.Changed()
		if n := count(time.Second); n != 1 {
			t.Errorf("%d reports in the second after a change, want 1", n)
		}
		pass(10 * time.Second)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					w.up.Changed()
				}
			}
		}()
		if n := count(time.Minute); n > 240 {
			t.Errorf("%d reports in a minute full of changes, want at most 4 a second", n)
		}
		close(stop)
		w.kill()
	})
}

func TestTheViewIsReadOnlyWhenTheRegistryHasMovedOn(t *testing.T) {
	running(t, func(w *world) {
		before := w.registry.reads
		pass(time.Hour)
		if w.registry.reads != before || before == 0 {
			t.Errorf("it was read %d times at first and %d times more with nothing new", before, w.registry.reads-before)
		}
		w.registry.set(func() { w.registry.volumes[0].Name = "renamed" })
		pass(time.Minute)
		if v, _, _ := w.up.View(); v.Volumes[0].Name != "renamed" {
			t.Error("what is new is not in the view")
		}
	})
}

// tooLong is a registry with an error for its list of volumes.
type tooLong struct {
	*registry
	err error
}

func (r *tooLong) Volumes(ctx context.Context) ([]api.Volume, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.registry.Volumes(ctx)
}

func TestAViewThatCannotBeReadIsLoggedOnceAndNamed(t *testing.T) {
	bubble(t, func(w *world) {
		lists := &tooLong{registry: w.registry, err: errBoom}
		w.specialRegistry = lists
		var log bytes.Buffer
		w.open().Memory.log = slog.New(slog.NewTextHandler(&log, nil))
		w.runUplink()
		logged := func() int { return strings.Count(log.String(), "cannot take on") }
		pass(time.Hour)
		if c := w.up.ViewChecks(); len(c) != 1 || !strings.Contains(c[0].Message, errBoom.Error()) || logged() != 1 || !w.up.Up() {
			t.Errorf("up: %t, the view: %+v; logged %d times:\n%s", w.up.Up(), c, logged(), log.String())
		}
		w.registry.With(func() { lists.err = api.Errorf(api.CodeInternal, "the list has no end") })
		pass(time.Hour)
		if logged() != 2 {
			t.Errorf("logged %d times after another error:\n%s", logged(), log.String())
		}
		w.registry.With(func() { lists.err = nil })
		pass(time.Minute)
		if c := w.up.ViewChecks(); len(c) > 0 || logged() != 2 {
			t.Errorf("with a view that can be read: %+v; logged %d times", c, logged())
		}
		w.kill()
	})
}

func TestTheViewOutlivesTheProcessAndSaysItsAge(t *testing.T) {
	bubble(t, func(w *world) {
		if _, _, known := w.open().View(); known {
			t.Error("there is a view before the registry has said anything")
		}
		w.start()
		pass(time.Minute)
		if _, age, known := w.up.View(); !known || age > 5*time.Second {
			t.Errorf("known: %t, age %s while the registry answers", known, age)
		}
		w.registry.SetDown(true)
		pass(time.Hour)
		w.kill()
		w.start()
		pass(time.Minute)
		v, age, known := w.up.View()
		if !known || age < time.Hour || len(v.Volumes) != 2 || w.up.Up() {
			t.Errorf("known: %t, age %s, %d volumes, up: %t", known, age, len(v.Volumes), w.up.Up())
		}
		if a, ok := w.up.Known(w.t.Context(), attachment("web")); !ok || a.InstanceID != web {
			t.Errorf("the attachment is known: %t, %+v", ok, a)
		}
		if a, ok := w.up.KnownAt(w.t.Context(), "db-disk", "db"); !ok || a.ID != attachment("db") {
			t.Errorf("the attachment of db-disk at db is known: %t, %+v", ok, a)
		}
		if _, ok := w.up.Known(w.t.Context(), "attach"); ok {
			t.Error("a beginning that fits two is taken for one")
		}
		w.kill()
	})
}

// perform is an API that answers with the task's id and counts the calls.
type perform struct {
	mu      sync.Mutex
	made    map[string]int
	running atomic.Int32
	most    atomic.Int32
	takes   time.Duration
}

func (p *perform) do(ctx context.Context, t api.Task) api.TaskAnswer {
	p.mu.Lock()
	if p.made == nil {
		p.made = map[string]int{}
	}
	p.made[t.ID]++
	p.mu.Unlock()
	p.most.Store(max(p.most.Load(), p.running.Add(1)))
	defer p.running.Add(-1)
	_ = retry.Sleep(ctx, p.takes)
	return api.TaskAnswer{Status: 200, Body: json.RawMessage(fmt.Sprintf(`{"schema_version":1,"done":%q}`, t.ID))}
}

// startTasks runs the tasks of a running daemon, until the end of the test or stop.
func (w *world) startTasks(p *perform) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.up.RunTasks(ctx, p.do) }()
	return func() { cancel(); w.must(<-ended) }
}

func (r *registry) ask(ids ...string) {
	r.set(func() {
		for _, id := range ids {
			r.tasks = append(r.tasks, api.Task{ID: id, Method: "POST", Path: "/v1/volumes"})
		}
	})
	r.newTask <- struct{}{}
}

func (r *registry) answered(id string) int {
	r.Lock()
	defer r.Unlock()
	return len(r.answers[id])
}

func TestATaskThatIsGivenOutAgainWhileItRunsIsDoneOnce(t *testing.T) {
	bubble(t, func(w *world) {
		p := &perform{takes: time.Minute}
		w.start()
		pass(time.Minute)
		stop := w.startTasks(p)
		w.registry.ask("a") // the registry sends it in every poll
		pass(2 * time.Minute)
		if p.made["a"] != 1 || w.registry.answered("a") != 1 {
			t.Errorf("done %d times, answered %d times", p.made["a"], w.registry.answered("a"))
		}
		stop()
		w.kill()
	})
}

func TestAnAnswerIsSentAgainUntilTheRegistryIsBack(t *testing.T) {
	bubble(t, func(w *world) {
		p := &perform{takes: time.Minute}
		w.start()
		pass(time.Minute)
		stop := w.startTasks(p)
		w.registry.ask("a")
		pass(time.Second)
		w.registry.SetDown(true)
		pass(time.Hour)
		w.registry.SetDown(false)
		pass(time.Minute)
		if p.made["a"] != 1 || w.registry.answered("a") != 1 {
			t.Errorf("done %d times, answered %d times", p.made["a"], w.registry.answered("a"))
		}
		stop()
		w.kill()
	})
}

func TestTasksRunAtOnceButNotAllOfThem(t *testing.T) {
	bubble(t, func(w *world) {
		p := &perform{takes: time.Minute}
		w.start()
		pass(time.Minute)
		stop := w.startTasks(p)
		var ids []string
		for n := range 100 {
			ids = append(ids, fmt.Sprint("task-", n))
		}
		w.registry.ask(ids...)
		pass(time.Hour)
		if most := p.most.Load(); most != tasksAtOnce {
			t.Errorf("%d tasks at once, want %d", most, tasksAtOnce)
		}
		for _, id := range ids {
			if w.registry.answered(id) != 1 {
				t.Errorf("task %s is answered %d times", id, w.registry.answered(id))
			}
		}
		stop()
		w.kill()
	})
}

// Another process has another session, and gets the unanswered tasks.
func TestATaskThatWasCutOffIsTakenUpByTheNextProcess(t *testing.T) {
	running(t, func(w *world) {
		stop := w.startTasks(&perform{takes: time.Hour})
		w.registry.ask("a")
		pass(time.Second)
		w.registry.SetDown(true) // the last answer does not arrive
		stop()
		w.kill()
		w.registry.SetDown(false)
		first := w.registry.sessions[0]
		w.start()
		p := &perform{}
		stop = w.startTasks(p)
		pass(time.Minute)
		if p.made["a"] != 1 || w.registry.answered("a") != 1 || w.up.session == first {
			t.Errorf("done %d times, answered %d times, session %s after %s", p.made["a"], w.registry.answered("a"), w.up.session, first)
		}
		stop()
	})
}

func TestAFencedHostFetchesNoTasks(t *testing.T) {
	bubble(t, func(w *world) {
		p := &perform{}
		w.start()
		pass(time.Minute)
		stop := w.startTasks(p)
		pass(time.Minute)
		w.fake.Disconnect()
		w.registry.fence()
		pass(time.Minute)
		w.registry.ask("a")
		pass(time.Minute)
		if n := p.made["a"]; n != 0 {
			t.Errorf("a fenced host did a task %d times", n)
		}
		w.fake.Reconnect()
		pass(time.Minute)
		if n := w.registry.answered("a"); n != 1 {
			t.Errorf("the task is answered %d times after the way back", n)
		}
		stop()
		w.kill()
	})
}

func TestAnAnswerThatTheRegistryCannotTakeIsSaidToBe(t *testing.T) {
	for name, body := range map[string]string{
		"too large": `{"x":"` + strings.Repeat("x", maxAnswerBytes) + `"}`, "no JSON": "hello", "nothing": "",
	} {
		a := fitting(api.TaskAnswer{Status: 200, Body: json.RawMessage(body)})
		if expect.Refusal(a.Body) == nil || a.Status != 500 {
			t.Errorf("%s: %d %.80s", name, a.Status, a.Body)
		}
	}
	good := api.TaskAnswer{Status: 201, Body: json.RawMessage(`{"a":1}`)}
	if diff := cmp.Diff(good, fitting(good)); diff != "" {
		t.Errorf("an answer that fits was changed (-want +got)\n%s", diff)
	}
}

func TestTheFilesAreTheDaemonsAlone(t *testing.T) {
	running(t, func(w *world) {
		for _, name := range []string{"uplink.json", "registry-view.json"} {
			info, err := os.Stat(filepath.Join(w.dir, name))
			w.must(err)
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %s", name, info.Mode())
			}
		}
	})
}
