// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// trial is a request of the user that is made again and again. Each time
// something dies on its way, and it has to end right without another word from
// the user.
type trial struct {
	*host

	// begin brings things to where the request can be made, and returns its
	// command line.
	begin func(*testing.T) (args []string)
	// noun is what the command answers with; empty is a migration.
	noun string
	// ended waits for the end of a request that is of no migration, and claims that
	// it is right. Want and settled are of migrations.
	ended func(*testing.T, *request)
	want  api.MigrationState
	// settled claims that the migration ended right and left nothing behind.
	settled func(*testing.T, api.Migration)
	// writer is the guest whose disk it is, if it runs all the time.
	writer *guest
	// waits: the command stays until the end, across the deaths.
	waits bool

	struck int
	gap    time.Duration // the longest in which the writer could not complete a write
	gapAt  point
}

// blow is one way to strike.
type blow struct {
	// arm is done before the trial begins, and ready, if there is one, when it has
	// begun and before the request is made.
	arm   func(*testing.T, point)
	ready func(*testing.T, point)
	// strike returns when something has died at the point, and is there again
	// if it is to come back. Lost ends if the request is refused: then the point
	// is never reached.
	strike func(t *testing.T, lost context.Context, p point)
}

// wayTimeout is how long a request may take to the point.
const wayTimeout = 3 * time.Minute

// daemonDies is the blow of a daemon that ends at the point. What else is to
// die then is gone before it starts again.
func (h *host) daemonDies(along func(*testing.T)) blow {
	return blow{
		arm: func(t *testing.T, p point) { h.restartDaemon(t, faultPoints+"="+string(p)+"=kill") },
		strike: func(t *testing.T, lost context.Context, p point) {
			if err := h.DaemonDied(lost); err != nil {
				t.Fatalf("the way does not lead past %s: %v", p, context.Cause(lost))
			}
			died := time.Now()
			along(t)
			h.definitionsStand(t)
			if err := h.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.away += time.Since(died)
		},
	}
}

func nothingElse(*testing.T) {}

// othersDie is the blow of something else that dies soon after the daemon has
// passed the point. The daemon goes on meanwhile.
func (h *host) othersDie(strike func(*testing.T)) blow {
	return blow{
		arm: func(t *testing.T, _ point) { h.watchPoints(t) },
		strike: func(t *testing.T, lost context.Context, p point) {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for !slices.Contains(h.passed(t), p) {
				select {
				case <-tick.C:
				case <-lost.Done():
					t.Fatalf("the way does not lead past %s: %v", p, context.Cause(lost))
				}
			}
			strike(t)
		},
	}
}

// way makes the request once, with nothing that disturbs it, and returns the
// points on its way. The gap of a guest that runs is what the others are to be
// compared with.
func (x *trial) way(t *testing.T) points {
	t.Helper()
	watch := blow{arm: func(t *testing.T, _ point) { x.watchPoints(t) }}
	return x.undisturbed(t, watch, x.pointLog())
}

// undisturbed makes the request once, with a blow that is never struck, and returns
// what was noted in a log then.
func (x *trial) undisturbed(t *testing.T, watch blow, log string) points {
	t.Helper()
	var all points
	watch.strike = func(*testing.T, context.Context, point) {}
	if !t.Run("undisturbed", func(t *testing.T) {
		x.once(t, "", watch)
		all = noted(t, log)
	}) {
		t.FailNow()
	}
	return all
}

// strikeAt makes the request once for each point that there is time for, and strikes there. It
// ends at the first wrong end: nothing would be certain after it.
func (x *trial) strikeAt(t *testing.T, ps points, b blow) {
	t.Helper()
	if len(ps) == 0 {
		t.Fatal("there is no point to strike at")
	}
	x.struck, x.gap = 0, 0
	crash.InTime(t, ps, func(p point) bool {
		if !t.Run(string(p), func(t *testing.T) { x.once(t, p, b) }) {
			t.Fatalf("wrong end after a blow at %s, the first of %d at %d points", p, x.struck, len(ps))
		}
		return true
	})
	t.Logf("%d points, %d blows, 0 wrong ends", len(ps), x.struck)
	if x.writer != nil {
		t.Logf("longest time without a completed write: %s, by the blow at %s", x.gap.Round(time.Millisecond), x.gapAt)
	}
}

// once makes the request, strikes at the point, and holds the end against what
// it has to be.
func (x *trial) once(t *testing.T, p point, b blow) {
	t.Helper()
	b.arm(t, p)
	x.hearsRegistry(t)
	args := x.begin(t)
	start := x.startsTrial(t)
	if b.ready != nil {
		b.ready(t, p)
	}
	x.away = 0
	from := time.Now()
	r := x.ask(t, args)
	b.strike(t, r.lost, p)
	x.struck++
	if x.ended != nil {
		<-r.answered
		x.hearsRegistry(t)
		x.ended(t, r)
		start.assertGuarantees(t)
		return
	}
	deaths := time.Duration(1)
	if p != "" && x.diesOnceMore(t) {
		deaths++
	}
	m := x.followed(t, r)
	x.noteGap(t, p, deaths*worstStall, from, time.Now())
	x.hearsRegistry(t) // until then the daemon shows the registry as it was before its death
	x.settled(t, m)
	start.assertGuarantees(t)
}

// diesOnceMore kills the daemon at a moment of chance after one blow in three of make test-crash,
// and starts it again: whatever the recovery from a blow has begun is cut off as well. It reports
// whether it did.
func (x *trial) diesOnceMore(t *testing.T) bool {
	t.Helper()
	if !crash.Every() {
		return false
	}
	_, seed := crash.Chance(t)
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	rnd := rand.New(rand.NewPCG(seed, name.Sum64()))
	if rnd.IntN(3) > 0 {
		return false
	}
	after := time.Duration(rnd.Int64N(int64(lastDeath)))
	<-time.After(after)
	t.Logf("the daemon is killed once more, %s after the blow", after.Round(time.Millisecond))
	died := time.Now()
	x.restartDaemon(t)
	x.away += time.Since(died)
	return true
}

// lastDeath is how long after a blow the daemon may be killed once more: a recovery takes as long.
const lastDeath = time.Second

// hearsRegistry waits until the daemon answers from the registry. A daemon that is
// started again and again is told to report less often, and answers from what it knew.
func (h *host) hearsRegistry(t *testing.T) {
	t.Helper()
	eventually(t, "the daemon hears the registry", func() bool {
		return slices.ContainsFunc(get[api.Status](t, h, "status", "status").Parts, func(p api.Check) bool {
			return p.Name == "registry" && p.Status == "ok"
		})
	})
}

// request is a command that runs beside the test.
type request struct {
	lost     context.Context // ends when it failed, or lasts too long
	answered chan struct{}
	// What it printed, once it is answered.
	answer json.RawMessage
	err    error
}

// ask makes the request.
func (x *trial) ask(t *testing.T, args []string) *request {
	t.Helper()
	if !x.waits {
		args = append([]string{"--no-wait"}, args...)
	}
	timed, stop := context.WithTimeout(t.Context(), lab.Limit(wayTimeout))
	t.Cleanup(stop)
	lost, lose := context.WithCancelCause(timed)
	r := &request{lost: lost, answered: make(chan struct{})}
	go func() {
		defer close(r.answered)
		if r.answer, r.err = site.Get[json.RawMessage](t.Context(), x.Caller, cmp.Or(x.noun, "migration"), args...); r.err != nil {
			lose(r.err)
		}
	}()
	return r
}

// answerOf waits for the answer of a request that must have succeeded.
func answerOf[T any](t *testing.T, r *request) T {
	t.Helper()
	<-r.answered
	if r.err != nil {
		t.Fatal(r.err)
	}
	var answer T
	if err := json.Unmarshal(r.answer, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// followed follows the migration of the request to its end.
func (x *trial) followed(t *testing.T, r *request) api.Migration {
	t.Helper()
	m := answerOf[api.Migration](t, r)
	if x.waits && m.State != x.want {
		t.Errorf("the command returned with the migration in state %s, want %s", m.State, x.want)
	}
	x.ctl(t, "--progress", "none", "migration", "watch", m.ID)
	m = get[api.Migration](t, x.host, "migration", "migration", "show", m.ID)
	if m.State != x.want || m.Error != nil {
		t.Fatalf("ended as %s, want %s: %+v", m.State, x.want, m)
	}
	return m
}

// noteGap holds the longest time without a completed write against most, the cost of a death for a
// guest, and the time until the dead program has started: no other program resumes the guest.
func (x *trial) noteGap(t *testing.T, p point, most time.Duration, from, to time.Time) {
	t.Helper()
	if x.writer == nil {
		return
	}
	h := x.writer.History("vda")
	gap := h.Between(from, to).LongestGap
	t.Logf("longest time without a completed write: %s", gap.Round(time.Millisecond))
	if gap > x.gap {
		x.gap, x.gapAt = gap, p
	}
	if stall := longestStall(h, span{from, to}); stall > most+x.away {
		t.Errorf("the guest could not write for %v, in which processors were free; that is too long", stall)
	}
}
