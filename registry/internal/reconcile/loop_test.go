// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errNoAnswer = errors.New("no answer")

func TestOfEachThingOneCallIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls WorkQueue[string]
		end := make(chan struct{})
		made := map[string]int{}
		for range 3 {
			for _, key := range []string{"a", "b"} {
				calls.Go(key, func() error { made[key]++; <-end; return nil })
				synctest.Wait()
			}
		}
		if made["a"] != 1 || made["b"] != 1 || !calls.Busy("a") {
			t.Errorf("calls: %v", made)
		}
		close(end)
		calls.Wait()
		if calls.Busy("a") {
			t.Error("a call that is over is on its way")
		}
	})
}

func TestACallThatFailsIsMadeAgainLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls WorkQueue[string]
		last := time.Now()
		var pauses []time.Duration
		for len(pauses) < 8 {
			calls.Go("a", func() error {
				pauses = append(pauses, time.Since(last))
				last = time.Now()
				return errNoAnswer
			})
			synctest.Wait()
			<-time.After(time.Second)
		}
		want := []time.Duration{0, 2, 4, 8, 16, 32, 60, 60}
		for n, p := range pauses {
			if p != want[n]*time.Second {
				t.Errorf("call %d: after %s", n, p)
			}
		}
		if calls.Due("a") {
			t.Error("its turn has come at once")
		}
		calls.Settled("a")
		if !calls.Due("a") {
			t.Error("what is settled is put off")
		}
	})
}

func TestATaskGoesOnWhateverARoundReturnsAndSaysItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		rounds, waited := 0, false
		look := func(context.Context) error {
			if rounds++; rounds == 5 {
				cancel()
			}
			return errNoAnswer
		}
		task := NewLoop("things", 0, slog.New(slog.NewTextHandler(&log, nil)), look, func() { waited = true })
		if err := task.Run(ctx); err != nil || rounds != 5 || !waited {
			t.Errorf("%d rounds, waited %t: %v", rounds, waited, err)
		}
		if n := strings.Count(log.String(), "things cannot be looked after"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
	})
}

func TestALoopLooksAtOnceAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, changed := time.Now(), make(chan struct{})
		var looks []time.Duration
		var l *Loop
		l = NewLoop("things", time.Minute, slog.New(slog.DiscardHandler), func(context.Context) error {
			switch looks = append(looks, time.Since(began)); len(looks) {
			case 1: // during the look
				close(changed)
				changed = make(chan struct{})
			case 2:
				l.LookSoon()
				l.LookSoon()
			case 4:
				cancel()
			}
			return nil
		}, func() {})
		l.LookAfter(func() <-chan struct{} { return changed })
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{0, 0, 0, time.Minute}; !slices.Equal(looks, want) {
			t.Errorf("it looked at %v, want %v", looks, want)
		}
	})
}

func TestWhoeverFoundACallUnderWayHearsOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := 0
		calls := WorkQueue[string]{Ended: func() { ends++ }}
		for _, found := range []bool{false, true} {
			end := make(chan struct{})
			calls.Go("a", func() error { <-end; return nil })
			if found {
				calls.Go("a", func() error { panic("two at a time") })
			}
			close(end)
			calls.Wait()
			if want := map[bool]int{true: 1}[found]; ends != want {
				t.Errorf("found under way %t: it was said %d times, want %d", found, ends, want)
			}
		}
	})
}
