// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/seedtest"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
)

// walk is a drain with random failures.
type walk struct {
	*site
	seed uint64
	// random is only for the goroutine of the walk, which draws while all others are blocked.
	random *rand.Rand
	// want has the final state of each volume in the drain, by its name.
	want map[string]string
	// away has the hosts with an absent daemon, and until when.
	away map[string]time.Time
}

// passing are temporary refusals, and final permanent ones.
var (
	passing = []api.Code{api.CodeInstanceBusy, api.CodeJournalUnavailable, api.CodeStaleGeneration}
	final   = []api.Code{api.CodeMultiattached, api.CodeUnsupportedDisk, api.CodePolicyDenied, api.CodeNoSpace}
)

// arrives makes a volume in the pool; its name and the seed determine its move.
func (w *walk) arrives() {
	w.T.Helper()
	name := fmt.Sprint("v", len(w.want))
	of := seedtest.RandOf(w.seed, name)
	host := []string{"a", "b"}[of.IntN(2)]
	d := w.hosts[host]
	for range of.IntN(3) {
		d.refuses(name, passing[of.IntN(len(passing))])
	}
	d.mu.Lock()
	for range of.IntN(2) {
		d.vanish[name] = append(d.vanish[name], passing[of.IntN(len(passing))])
	}
	w.want[name] = api.DrainVolumeMoved
	switch of.IntN(8) {
	case 0:
		d.end[name], w.want[name] = api.MigrationError, api.DrainVolumeFailed
	case 1:
		d.end[name], w.want[name] = api.MigrationNeedsOperator, api.DrainVolumeFailed
	case 2:
		d.vanish[name], w.want[name] = append(d.vanish[name], final[of.IntN(len(final))]), api.DrainVolumeSkipped
	case 3:
		d.refuse[name] = append(d.refuse[name], relaytest.Refuse(final[of.IntN(len(final))]))
		w.want[name] = api.DrainVolumeSkipped
	}
	d.mu.Unlock()
	w.volume(host, name)
}

// share makes two volumes that two guests of host a share, and a volume of one of these guests
// alone. Names and seed determine the moves of the shared volumes.
func (w *walk) share() {
	w.T.Helper()
	w.site.share()
	w.give("other", "gold", "vdc", "g1", "g2")
	w.give("single", "", "vdd", "g1")
	w.want["v0"], w.want["single"] = api.DrainVolumeMoved, api.DrainVolumeMoved
	for _, name := range []string{"shared", "other"} {
		w.want[name] = []string{api.DrainVolumeMoved, api.DrainVolumeFailed}[seedtest.RandOf(w.seed, name).IntN(2)]
	}
}

// advanceShared sometimes ends moves of shared volumes.
func (w *walk) advanceShared() {
	w.T.Helper()
	for _, p := range expect.Value(w.Store.Pauses.Open(w.T.Context()))(w.T) {
		switch ends := w.want[p.Migration.VolumeName]; {
		case w.random.IntN(8) > 0:
		case ends == api.DrainVolumeMoved:
			w.bringOver(p.Migration.ID)
		default:
			w.takeBack(p.Migration.ID)
		}
	}
}

// goWrong may cause a failure.
func (w *walk) goWrong(id string, left *int) {
	name := []string{"a", "b"}[w.random.IntN(2)]
	d, here := w.hosts[name], w.away[name].IsZero()
	if n := w.random.IntN(30); n < 6 && *left > 0 {
		*left--
		switch {
		case n == 0 && here: // it dies with its next answer
			d.mu.Lock()
			d.journal.Mute = 1
			d.mu.Unlock()
		case n <= 1 && here:
			d.Away()
			w.away[name] = time.Now().Add(time.Duration(w.random.IntN(90)) * time.Second)
		case n == 2:
			w.restart()
		case n == 3:
			w.ask(id, api.DrainPaused)
		case n == 4 && len(w.want) < 10:
			w.arrives()
		}
	}
	if w.random.IntN(10) == 0 {
		w.ask(id, api.DrainRunning)
	}
	for _, name := range []string{"a", "b"} {
		if at := w.away[name]; !at.IsZero() && !at.After(time.Now()) {
			w.away[name] = time.Time{}
			w.hosts[name].Start()
		}
	}
}

// ask requests a state of the drain, which may have ended.
func (w *walk) ask(id, to string) {
	w.T.Helper()
	if _, err := w.Store.Drains.SetState(w.T.Context(), store.Call{}, id, to); err != nil && api.CodeOf(err) != api.CodeStateForbidden {
		w.T.Errorf("the drain is to be %s: %v", to, err)
	}
}

// toTheEnd drains the pool, and returns its volumes in the drain.
func (w *walk) toTheEnd() []api.DrainVolume {
	w.T.Helper()
	parallel, left := 1+w.random.IntN(3), 8
	if w.random.IntN(2) == 0 {
		w.share()
	}
	for range 1 + w.random.IntN(4) {
		w.arrives()
	}
	id := w.drain(parallel)
	for range 5000 {
		d := expect.Value(w.Store.Drains.Get(w.T.Context(), id))(w.T)
		moving := 0
		for _, v := range d.Volumes {
			if v.State == api.DrainVolumeMoving {
				moving++
			}
		}
		if moving > parallel {
			w.T.Fatalf("%d volumes move, and no more than %d are to: %s", moving, parallel, w.states(id))
		}
		if d.State == api.DrainDone {
			w.wantDone(id)
			return d.Volumes
		}
		relaytest.Pass(time.Duration(1+w.random.IntN(3000)) * time.Millisecond)
		w.advanceShared()
		w.goWrong(id, &left)
	}
	w.T.Fatalf("not done: %s", w.states(id))
	return nil
}

// startDaemons restarts every daemon, so that each gets its unanswered tasks again, and answers
// them: a death that was due with the next answer is over.
func (w *walk) startDaemons() {
	for _, name := range []string{"a", "b"} {
		d := w.hosts[name]
		d.Away()
		d.mu.Lock()
		d.journal.Mute = 0
		d.mu.Unlock()
		d.Start()
	}
}

// wantDone requires of an ended drain: each volume is where the drain's state says, was moved at
// most once and is locked only by a move that needs an operator; no work is in progress; the trail
// is intact.
func (w *walk) wantDone(id string) {
	w.T.Helper()
	ctx := w.T.Context()
	w.startDaemons()
	relaytest.Pass(time.Minute)
	moves := w.moves()
	for _, line := range expect.Value(w.Store.Drains.Get(ctx, id))(w.T).Volumes {
		v := expect.Value(w.Store.Volumes.Get(ctx, line.VolumeName, store.Viewer{}))(w.T)
		stands := line.Error != nil && line.Error.Code == api.CodeNeedsOperator
		if line.State != w.want[line.VolumeName] || (v.Location.Pool == "slow") != (line.State == api.DrainVolumeMoved) || (v.MigrationID != "") != stands || moves[v.Name] > 1 {
			w.T.Errorf("volume %s: want %s, was moved %d times; its part is %+v, and it is %+v", v.Name, w.want[v.Name], moves[v.Name], line, v)
		}
	}
	if open := expect.Value(w.Store.Drains.Open(ctx))(w.T); len(open) > 0 {
		w.T.Errorf("a drain is open: %+v", open)
	}
	for _, d := range w.hosts {
		if tasks := expect.Value(w.Store.Tasks.Pending(ctx, d.ID))(w.T); len(tasks) > 0 {
			w.T.Errorf("host %s has still to do %+v", d.Name, tasks)
		}
		d.mu.Lock()
		if d.moving > 0 {
			w.T.Errorf("host %s still moves %d volumes", d.Name, d.moving)
		}
		d.mu.Unlock()
	}
	expect.Value(w.Store.Trail.Verify(ctx))(w.T)
}

// Each walk has random failures of moves, daemons and the registry, an operator who pauses the
// drain, and new volumes, in random order. In half of them guests share volumes.
func TestNothingIsLeftOfADrainHoweverItGoes(t *testing.T) {
	const enough = 200 // walks to see each way to the end
	walks := enough
	if testing.Short() {
		walks = 15
	}
	ends := map[string]int{}
	walks = seedtest.Every(t, walks, func(t *testing.T, seed uint64) {
		bubble(t, func(s *site) {
			w := &walk{site: s, seed: seed, random: seedtest.Rand(seed), want: map[string]string{}, away: map[string]time.Time{}}
			for _, v := range w.toTheEnd() {
				ends[v.State]++
			}
		})
	})
	t.Logf("ends %v", ends)
	if seen := []int{ends[api.DrainVolumeMoved], ends[api.DrainVolumeSkipped], ends[api.DrainVolumeFailed]}; walks >= enough && slices.Min(seen) == 0 {
		t.Errorf("the walks end as %v: they do not show much", ends)
	}
}
