// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

var (
	errTry  = errors.New("this try failed")
	errStop = errors.New("stop")
)

func always(error) bool { return true }

// endsInASecond returns a context that ends in a second with the cause errStop.
func endsInASecond(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Second, func() { cancel(errStop) })
	return ctx
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := retry.Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("Sleep() = %v after %s", err, time.Since(began))
		}
		began, ctx := time.Now(), endsInASecond(t)
		if err := retry.Sleep(ctx, time.Minute); !errors.Is(err, errStop) || time.Since(began) != time.Second {
			t.Errorf("Sleep() = %v after %s, want the cause", err, time.Since(began))
		}
		if err := retry.Sleep(ctx, 0); !errors.Is(err, errStop) {
			t.Errorf("Sleep() for no time in a context that ended = %v", err)
		}
	})
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	b := retry.Backoff{First: 100, Max: 500}
	delays := func() (all []time.Duration) {
		for range 5 {
			all = append(all, b.Next())
		}
		return all
	}
	want := []time.Duration{100, 200, 400, 500, 500}
	if got := delays(); !slices.Equal(got, want) {
		t.Errorf("delays = %v, want %v", got, want)
	}
	b.Reset()
	if got := delays(); !slices.Equal(got, want) {
		t.Errorf("delays after Reset = %v, want %v", got, want)
	}
}

func TestDoTriesUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		err := retry.Do(t.Context(), retry.Backoff{First: time.Second, Max: 2 * time.Second}, retry.Forever, func() error {
			if tries++; tries < 4 {
				return errTry
			}
			return nil
		}, always)
		if err != nil || tries != 4 || time.Since(began) != 5*time.Second {
			t.Errorf("Do() = %v after %d tries and %s", err, tries, time.Since(began))
		}
	})
}

func TestDoGivesUpOnAFinalError(t *testing.T) {
	tries := 0
	err := retry.Do(t.Context(), retry.Backoff{First: time.Hour, Max: time.Hour}, retry.Forever,
		func() error { tries++; return errTry }, func(error) bool { return false })
	if !errors.Is(err, errTry) || tries != 1 {
		t.Errorf("Do() = %v after %d tries", err, tries)
	}
}

func TestDoMakesItsLastTryAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		asked, began := 0, time.Now()
		err := retry.Do(t.Context(), retry.Backoff{First: 2 * time.Second, Max: 2 * time.Second}, 5*time.Second, func() error {
			at = append(at, time.Since(began))
			return errTry
		}, func(error) bool { asked++; return true })
		if want := []time.Duration{0, 2 * time.Second, 4 * time.Second, 5 * time.Second}; !errors.Is(err, errTry) || !slices.Equal(at, want) {
			t.Errorf("Do() = %v with tries at %v, want %v", err, at, want)
		}
		if asked != 3 {
			t.Errorf("again was asked %d times, want not after the last try", asked)
		}
		if err := retry.Do(t.Context(), retry.Backoff{}, 0, func() error { return errTry }, func(error) bool { panic("asked") }); !errors.Is(err, errTry) {
			t.Errorf("Do() with no time = %v", err)
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Backoff{First: time.Minute, Max: time.Minute}
		err := retry.Do(endsInASecond(t), b, retry.Forever, func() error { return errTry }, always)
		if !errors.Is(err, errStop) {
			t.Errorf("Do() = %v, want the cause", err)
		}
		ctx := endsInASecond(t)
		err = retry.Do(ctx, b, retry.Forever, func() error { <-ctx.Done(); return errTry }, always)
		if !errors.Is(err, errTry) {
			t.Errorf("Do() = %v, want the error of the try during which the context ended", err)
		}
	})
}

func TestPollLooksUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		ok, err := retry.Poll(t.Context(), time.Second, retry.Forever, func() (bool, error) { looks++; return looks == 3, nil })
		if !ok || err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("Poll() = %t, %v after %s", ok, err, time.Since(began))
		}
	})
}

func TestPollEndsWithItsBoundAnErrorOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		never := func() (bool, error) { looks++; return false, nil }
		if ok, err := retry.Poll(t.Context(), time.Second, 5*time.Second, never); ok || err != nil || looks != 6 {
			t.Errorf("Poll() = %t, %v after %d looks, want 6", ok, err, looks)
		}
		if ok, err := retry.Poll(t.Context(), time.Second, retry.Forever, func() (bool, error) { return false, errTry }); ok || !errors.Is(err, errTry) {
			t.Errorf("Poll() = %t, %v", ok, err)
		}
		if ok, err := retry.Poll(endsInASecond(t), time.Minute, retry.Forever, never); ok || !errors.Is(err, errStop) {
			t.Errorf("Poll() = %t, %v, want the cause", ok, err)
		}
	})
}
