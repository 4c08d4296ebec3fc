// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// sent counts the whole reports and the digests in a period.
func (w *world) sent(d time.Duration) (whole, digests int) {
	w.t.Helper()
	w.registry.Lock()
	w.registry.reports = nil
	w.registry.Unlock()
	pass(d)
	w.registry.Lock()
	defer w.registry.Unlock()
	for _, r := range w.registry.reports {
		switch {
		case r.Digest == "":
			whole++
		case r.Pools != nil || r.Instances != nil || r.BootID != "":
			w.t.Errorf("a digest with what it stands for: %+v", r)
		default:
			digests++
		}
		if r.ID != thisHost || r.Name != "alpha" || r.Epoch != w.registry.Newest(thisHost) || r.Mark == nil {
			w.t.Errorf("a report without what every one has: %+v", r)
		}
	}
	return whole, digests
}

// quiet starts a daemon with nothing new to report after its first reports.
func (w *world) quiet() {
	w.t.Helper()
	w.start()
	pass(time.Minute + time.Millisecond)
	if whole, digests := w.sent(time.Minute); whole != 0 || digests != 12 {
		w.t.Fatalf("%d whole reports and %d digests in a quiet minute, want 0 and 12", whole, digests)
	}
}

func TestAHostWithNothingNewSendsADigest(t *testing.T) {
	bubble(t, func(w *world) {
		w.quiet()
		if whole, digests := w.sent(10 * time.Minute); whole != 2 || digests != 118 {
			t.Errorf("%d whole reports and %d digests in ten quiet minutes, want 2 and 118", whole, digests)
		}
		w.kill()
	})
}

func TestWhatHasChangedIsReportedWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		within time.Duration
	}{
		"an instance stops": {func(w *world) { w.must(w.fake.PowerOff(w.t.Context(), web)) }, reportEvery},
		"a pool is there":   {func(w *world) { w.fake.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", Active: true}) }, reportEvery},
		"the sizes of a pool": {func(w *world) {
			w.fake.AddPool(hv.PoolInfo{Name: "local", Type: "dir", Path: "/local", Active: true, FreeBytes: 7})
		}, sizesEvery + reportEvery},
		"a pool is not active":  {func(w *world) { w.fake.AddPool(hv.PoolInfo{Name: "local", Type: "dir", Path: "/local"}) }, reportEvery},
		"a registry just began": {func(w *world) { w.registry.set(func() { w.registry.digest = "" }) }, reportEvery},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.quiet()
				tc.change(w)
				if whole, _ := w.sent(tc.within); whole != 1 {
					t.Errorf("%d whole reports within %v, want 1", whole, tc.within)
				}
				w.kill()
			})
		})
	}
}

func TestProgressGoesWithADigest(t *testing.T) {
	bubble(t, func(w *world) {
		w.quiet()
		w.moving(api.Migration{ID: "m"})
		if whole, digests := w.sent(time.Minute); whole != 0 || digests < 50 {
			t.Errorf("%d whole reports and %d digests in a minute with a migration", whole, digests)
		}
		if r := w.report(); r.Digest == "" || len(r.Migrations) != 1 {
			t.Errorf("report %+v", r)
		}
		w.kill()
	})
}

// A registry without digests sends none, and would refuse one.
func TestARegistryThatGivesNoDigestHearsEverything(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.plain = true
		w.start()
		pass(time.Minute)
		if whole, digests := w.sent(time.Minute); whole < 12 || digests != 0 {
			t.Errorf("%d whole reports and %d digests", whole, digests)
		}
		w.kill()
	})
}

// TestAHostWithNothingNewIsAsSilentAsTheRegistryWants, at most for a minute because it does not
// poll, and is examined as often as before.
func TestAHostWithNothingNewIsAsSilentAsTheRegistryWants(t *testing.T) {
	for every, want := range map[int]int{0: 120, 1: 120, 20: 30, 50: 12, 200: 10, 3600: 10} {
		bubble(t, func(w *world) {
			w.registry.every = every
			w.start()
			pass(5*time.Minute + time.Millisecond)
			whole, digests := w.sent(10 * time.Minute)
			if got := whole + digests; got < want-2 || got > want+2 {
				t.Errorf("a registry that wants to hear of a host every %d s: %d reports in ten quiet minutes, want %d", every, got, want)
			}
			w.must(w.fake.PowerOff(w.t.Context(), web))
			if whole, _ := w.sent(reportEvery + reportPause); whole != 1 {
				t.Errorf("every %d s: %d whole reports within %v of a change, want 1", every, whole, reportEvery)
			}
			w.kill()
		})
	}
}

// TestARegistryThatHasJustBegunSoonHearsOfASilentHost: the open poll for tasks breaks.
func TestARegistryThatHasJustBegunSoonHearsOfASilentHost(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.every = 60
		w.start()
		stop := w.startTasks(&perform{})
		pass(5*time.Minute + 30*time.Second)
		w.registry.SetDown(true)
		w.registry.newTask <- struct{}{}
		pass(reportPause)
		w.registry.set(func() { w.registry.Down, w.registry.digest = false, "" })
		// Its hosts report within three seconds, or after another attempt.
		if whole, _ := w.sent(8 * time.Second); whole != 1 {
			t.Errorf("%d whole reports within 8 s, want 1", whole)
		}
		stop()
		w.kill()
	})
}

// TestRareReportsAreMadeBetweenPolls: a report during an open poll needs a second connection.
func TestRareReportsAreMadeBetweenPolls(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.every = 200
		w.start()
		stop := w.startTasks(&perform{})
		pass(10*time.Minute + time.Millisecond)
		w.registry.set(func() { w.registry.besidePoll, w.registry.waits = 0, nil })
		whole, digests := w.sent(40 * time.Minute)
		if n := whole + digests; n < 11 || n > 13 || whole > 7 {
			t.Errorf("%d reports in 40 minutes, %d of them whole, want one every 195 s, and every other one whole", n, whole)
		}
		w.fake.AddPool(hv.PoolInfo{Name: "local", Type: "dir", Path: "/local", Active: true, FreeBytes: 7})
		if whole, _ := w.sent(200 * time.Second); whole != 1 || w.report().Pools[1].FreeBytes != 7 {
			t.Errorf("%d whole reports in the time of one, of the pools %+v: want what they have free", whole, w.report().Pools)
		}
		w.registry.set(func() {
			if n := w.registry.besidePoll; n != 0 {
				t.Errorf("%d of them beside an open poll", n)
			}
			for _, wait := range w.registry.waits {
				if wait != 195*time.Second {
					t.Errorf("a poll of %v", wait)
				}
			}
		})
		w.must(w.fake.PowerOff(w.t.Context(), web))
		if whole, _ := w.sent(reportEvery + reportPause); whole != 1 {
			t.Errorf("%d whole reports within %v of a change, want 1", whole, reportEvery)
		}
		stop()
		w.kill()
	})
}

// TestPollsAreNoLongerThanAnOlderRegistryTakes: its limit is a minute, and it wants reports as
// often.
func TestPollsAreNoLongerThanAnOlderRegistryTakes(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.every = 60
		w.start()
		stop := w.startTasks(&perform{})
		pass(10 * time.Minute)
		w.registry.set(func() {
			if len(w.registry.waits) < 10 || slices.Max(w.registry.waits) > time.Minute {
				t.Errorf("polls of %v", w.registry.waits)
			}
		})
		stop()
		w.kill()
	})
}

func TestAHostPollsAgainAfterItsRegistryWasTakenBackToAnOlderVersion(t *testing.T) {
	bubble(t, func(w *world) {
		w.registry.every = 200
		w.start()
		stop := w.startTasks(&perform{})
		pass(10 * time.Minute)
		w.registry.set(func() { w.registry.every, w.registry.longestPoll, w.registry.waits = 50, time.Minute, nil })
		w.registry.newTask <- struct{}{} // the open poll ends
		pass(10 * time.Second)
		w.registry.set(func() {
			if waits := w.registry.waits; len(waits) == 0 || len(waits) > 3 || waits[len(waits)-1] > time.Minute {
				t.Errorf("polls of %v", waits)
			}
		})
		stop()
		w.kill()
	})
}
