// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// largeSite is the report interval of a registry with 10,000 hosts, in seconds.
const largeSite = 200

// called records the times of the calls of a registry, also while it does not answer.
type called struct {
	*registry
	mu sync.Mutex
	at []time.Time
}

func (c *called) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
}

func (c *called) since(t time.Time) (after []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		if !at.Before(t) {
			after = append(after, at.Sub(t))
		}
	}
	return after
}

func (c *called) Report(ctx context.Context, in api.HostReport) (api.Host, error) {
	c.note()
	return c.registry.Report(ctx, in)
}

func (c *called) Tasks(ctx context.Context, host, session string, wait time.Duration) ([]api.Task, error) {
	c.note()
	return c.registry.Tasks(ctx, host, session, wait)
}

// eachHost has twenty hosts, each with its own random numbers, poll a registry with this report
// interval until it knows them all.
func eachHost(t *testing.T, every int, f func(w *world, c *called)) {
	t.Helper()
	eachReporter(t, every, func(w *world, c *called) {
		stop := w.startTasks(&perform{})
		pass(10*time.Minute + time.Second) // no poll ends at this moment
		f(w, c)
		stop()
	})
}

// eachReporter has them report, but not poll.
func eachReporter(t *testing.T, every int, f func(w *world, c *called)) {
	t.Helper()
	for i := range 20 {
		bubble(t, func(w *world) {
			w.registry.every = every
			c := &called{registry: w.registry}
			w.specialRegistry = c
			w.open().random = func() float64 { return (float64(i) + 0.5) / 20 }
			w.runUplink()
			pass(10 * time.Minute)
			f(w, c)
			w.kill()
		})
	}
}

// restart ends a registry, and starts it again after a time.
func (w *world) restart(away time.Duration) (end time.Time) {
	w.registry.SetDown(true)
	w.registry.newTask <- struct{}{} // the open poll breaks
	end = time.Now()
	pass(away)
	w.registry.set(func() { w.registry.Down, w.registry.digest = false, "" })
	return end
}

// mostIn returns the greatest number of these times in one window of this length.
func mostIn(window time.Duration, at []time.Duration) (most int) {
	windows := map[time.Duration]int{}
	for _, d := range at {
		windows[d.Truncate(window)]++
		most = max(most, windows[d.Truncate(window)])
	}
	return most
}

func TestHostsDoNotCallARestartedRegistryInOneMoment(t *testing.T) {
	var first []time.Duration
	eachHost(t, largeSite, func(w *world, c *called) {
		end := w.restart(time.Millisecond)
		pass(time.Minute)
		first = append(first, c.since(end)[0])
	})
	if most := mostIn(time.Second, first); most > 4 || slices.Max(first) > spreadMax+reportPause {
		t.Errorf("%d of 20 hosts of a large site call in one second; after %v", most, first)
	}
}

func TestHostsOfASmallSiteCallARestartedRegistryAtOnce(t *testing.T) {
	eachHost(t, 5, func(w *world, c *called) {
		end := w.restart(time.Millisecond)
		pass(time.Minute)
		if first := c.since(end)[0]; first > 250*time.Millisecond+reportPause {
			t.Errorf("it is called after %v", first)
		}
	})
}

func TestHostsDoNotTryARegistryThatIsAwayInOneMoment(t *testing.T) {
	for _, site := range []struct {
		every       int
		least, most int // attempts in ten minutes: a report and a poll by each host
	}{
		{every: largeSite, least: 20 * 80, most: 20 * 200},
		{every: 5, least: 20 * 800, most: 20 * 2000},
	} {
		var tries []time.Duration
		eachHost(t, site.every, func(w *world, c *called) {
			end := w.restart(10 * time.Minute)
			tries = append(tries, c.since(end)...)
		})
		if n := len(tries); n < site.least || n > site.most {
			t.Errorf("20 hosts that are to report every %d s make %d tries in ten minutes, want %d to %d", site.every, n, site.least, site.most)
		}
	}
}

// TestHostsThatNoticeItInOneMomentTryARegistryAtDifferentTimes: all reports are due at that moment.
func TestHostsThatNoticeItInOneMomentTryARegistryAtDifferentTimes(t *testing.T) {
	var second []time.Duration
	eachReporter(t, 5, func(w *world, c *called) {
		w.registry.SetDown(true)
		down := time.Now()
		pass(2 * reportEvery)
		tries := c.since(down)
		second = append(second, tries[1]-tries[0])
		w.registry.SetDown(false)
		pass(time.Minute)
	})
	if most := mostIn(retryEvery/10, second); most > 3 || slices.Min(second) < retryEvery/2 || slices.Max(second) > 2*retryEvery {
		t.Errorf("%d of 20 hosts try it within %v; after %v", most, retryEvery/10, second)
	}
}

func TestHostsThatCameToARegistryTogetherPollItAtDifferentTimes(t *testing.T) {
	var ends []time.Duration
	eachHost(t, largeSite, func(w *world, _ *called) {
		w.restart(time.Millisecond)
		pass(time.Minute / 4)
		w.registry.set(func() { ends = append(ends, w.registry.waits[len(w.registry.waits)-1]) })
		pass(5 * time.Minute)
		w.registry.set(func() { w.registry.besidePoll = 0 })
		pass(40 * time.Minute)
		w.registry.set(func() {
			if n, last := w.registry.besidePoll, w.registry.waits[len(w.registry.waits)-1]; n > 0 || last != 195*time.Second {
				t.Errorf("%d reports beside an open poll; the last poll is of %v", n, last)
			}
		})
	})
	if most := mostIn(time.Second, ends); most > 2 || slices.Min(ends) < fetchWait || slices.Max(ends) > 195*time.Second {
		t.Errorf("the first polls of 20 hosts are of %v", ends)
	}
}
