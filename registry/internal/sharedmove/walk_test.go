// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/seedtest"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

// walk is a move with random failures.
type walk struct {
	*site
	// random is only for the goroutine of the walk, which draws while all others are blocked.
	random *rand.Rand
	// away has the hosts with an absent daemon, and until when.
	away map[string]time.Time
	// reboots, restarts and cancels are the remaining numbers of these events.
	reboots, restarts, cancels int
	needed                     bool // an operator
}

func newWalk(s *site, seed uint64) *walk {
	w := &walk{site: s, random: seedtest.Rand(seed), away: map[string]time.Time{}, restarts: 3}
	w.reboots, w.cancels = w.random.IntN(2), w.random.IntN(2)
	relaytest.Pass(beside)
	var mu sync.Mutex
	tasks := map[string]int{}
	s.apart = func(d *daemon, task api.Task) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		name := d.Name + " " + task.Path
		tasks[name]++
		return time.Duration(1 + seedtest.RandOf(seed, fmt.Sprint("apart ", name, tasks[name])).Int64N(int64(beside)))
	}
	calls := map[string]int{}
	s.chance = func(d *daemon, verb string, task api.Task) (string, time.Duration) {
		_, name, _ := strings.Cut(task.ID, ".")
		switch verb { // their ids differ each time
		case "check-save":
			name = task.Path
		case "check-copy":
			name = verb
		}
		name = d.Name + " " + name
		calls[name]++
		of := seedtest.RandOf(seed, fmt.Sprint(name, calls[name]))
		takes, end := time.Duration(of.IntN(4000))*time.Millisecond, ""
		if ends := endsOf[verb]; of.IntN(20) == 0 {
			end = ends[of.IntN(len(ends))]
		}
		s.happened = append(s.happened, fmt.Sprint(time.Now().UnixMilli(), " ", name, " ", end))
		return end, takes
	}
	return w
}

// beside is the longest delay between tasks of a walk. The walk itself acts this long after a full
// millisecond.
const beside = 100 * time.Microsecond

// endsOf has the bad ends of a verb's calls in a walk.
var endsOf = map[string][]string{
	"check-save": {busy, refused},
	"check-copy": {busy, refused},
	"suspend":    {busy, refused, crashed, undone, halted, doubted},
	"save":       {busy, refused, barred, crashed, undone, halted, doubted, resumed},
	"copy-saved": {busy, refused, crashed, undone, halted, doubted},
	"restore":    {busy, refused, crashed, undone, halted, doubted},
	"resume":     {busy, crashed, undone, halted, doubted},
	"drop-saved": {busy, crashed, undone, halted},
}

// goWrong may cause a failure.
func (w *walk) goWrong(id string) {
	name := []string{"a", "b"}[w.random.IntN(2)]
	d, here := w.hosts[name], w.away[name].IsZero()
	switch n := w.random.IntN(40); {
	case n == 0 && here:
		d.diesWithATask()
	case n == 1 && here:
		d.Away()
		w.away[name] = time.Now().Add(time.Duration(w.random.IntN(90)) * time.Second)
	case n == 2 && here && w.reboots > 0:
		w.reboots--
		d.reboot()
	case n == 3 && w.restarts > 0:
		w.restarts--
		w.restart()
	case n == 4 && w.cancels > 0:
		w.cancels--
		err := w.cancel(id)
		if code := api.CodeOf(err); err != nil && code != api.CodePastPointOfNoReturn && code != api.CodeStateForbidden && code != api.CodeNoMigration {
			w.T.Errorf("cancel: %v", err)
		}
	}
	w.comeBack()
}

// comeBack starts the daemons that are due.
func (w *walk) comeBack() {
	for _, name := range []string{"a", "b"} {
		if at := w.away[name]; !at.IsZero() && !at.After(time.Now()) {
			w.away[name] = time.Time{}
			w.hosts[name].Start()
		}
	}
}

// startDaemons restarts every daemon, so that each gets its unanswered tasks again.
func (w *walk) startDaemons() {
	for _, name := range []string{"a", "b"} {
		d := w.hosts[name]
		d.Away()
		w.mu.Lock()
		d.journal.Mute = 0
		w.mu.Unlock()
		d.Start()
	}
}

// obey executes the registry's advice for a move that needs an operator.
func (w *walk) obey(m api.Migration) {
	w.T.Helper()
	w.needed = true
	again, _ := m.Cures()
	if again == "" {
		w.T.Fatalf("the migration needs an operator in phase %s, and says no command: %v", m.Phase, m.Error)
	}
	for _, line := range strings.Split(again, api.CureSeparator) {
		if strings.HasPrefix(line, "volferryctl instance start ") { // once the move is over
			continue
		}
		if err := w.Type(line); err != nil && api.CodeOf(err) != api.CodeStateForbidden { // the move has advanced since
			w.T.Errorf("%s: %v", line, err)
		}
	}
}

// toTheEnd moves the volume to the end of the move, and returns the migration.
func (w *walk) toTheEnd() api.Migration {
	w.T.Helper()
	id := w.move()
	defer func() {
		if w.T.Failed() {
			w.T.Logf("what was asked for:\n%s", strings.Join(w.happened, "\n"))
		}
	}()
	for range 5000 {
		m := expect.Value(w.Store.Migrations.Get(w.T.Context(), id, store.Viewer{}))(w.T)
		if m.State.Final() {
			w.startDaemons()
			relaytest.Pass(30 * time.Second)
			w.wantWhole(id)
			w.wantNothingOpen(id)
			return m
		}
		relaytest.Pass(time.Duration(1+w.random.IntN(1500)) * time.Millisecond)
		if m.State == api.MigrationNeedsOperator && w.random.IntN(8) == 0 {
			w.obey(m)
		}
		w.goWrong(id)
		if len(w.broken) > 0 {
			w.T.Fatalf("in phase %s: %s", m.Phase, w.broken[0])
		}
	}
	w.T.Fatalf("not over: %s: %+v", w.state(id), expect.Value(w.Store.Pauses.Get(w.T.Context(), id))(w.T))
	return api.Migration{}
}

// wantNothingOpen requires after a move that no move and no task is open at the registry and no op
// in a journal, and that the trail has the whole move.
func (s *site) wantNothingOpen(id string) {
	s.T.Helper()
	ctx := s.T.Context()
	if open := expect.Value(s.Store.Pauses.Open(ctx))(s.T); len(open) > 0 {
		s.T.Errorf("a move is open: %+v", open)
	}
	for _, d := range s.hosts {
		if tasks := expect.Value(s.Store.Tasks.Pending(ctx, d.ID))(s.T); len(tasks) > 0 {
			s.T.Errorf("host %s has still to do %+v", d.Name, tasks)
		}
		s.mu.Lock()
		for _, o := range d.ops {
			if o.State == "running" {
				s.T.Errorf("host %s is still at %s", d.Name, o.ID)
			}
		}
		s.mu.Unlock()
	}
	s.WantTrail(id, expect.Value(s.Store.Migrations.Get(ctx, id, store.Viewer{}))(s.T).State)
}

// Each walk has random failures of calls, daemons, hosts and the registry, and an operator's
// cancel, in random order. The hosts' calls check the invariants.
func TestNothingIsLeftOfAMoveHoweverItGoes(t *testing.T) {
	const enough = 300 // walks to see each way to the end
	walks := enough
	if testing.Short() {
		walks = 20
	}
	ends := map[string]int{}
	walks = seedtest.Every(t, walks, func(t *testing.T, seed uint64) {
		bubble(t, func(s *site) {
			w := newWalk(s, seed)
			m := w.toTheEnd()
			ends[string(m.State)]++
			if w.needed {
				ends["with an operator"]++
			}
		})
	})
	t.Logf("ends %v", ends)
	if walks >= enough && (ends["completed"] == 0 || ends["cancelled"] == 0 || ends["with an operator"] == 0) {
		t.Errorf("the walks end as %v: they do not show much", ends)
	}
}

// The seed does not determine the order of two goroutines at the same moment. Few such moments are
// left; such a walk may continue in two ways.
func TestOneSeedIsOneWalk(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 1
	}
	seedtest.SameTwice(t, seeds, func(t *testing.T, seed uint64) (_ []uint64, happened []string) {
		bubble(t, func(s *site) {
			newWalk(s, seed).toTheEnd()
			happened = s.happened
		})
		slices.Sort(happened) // hosts are called at the same moment in any order
		return nil, happened
	})
}
