// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/seedtest"
)

// Pass lets fake time pass in a bubble.
func Pass(d time.Duration) { <-time.After(d) }

// EveryCall makes a trial in which something happens at its first call, then a trial in
// which it happens at the next, and so on, each in a bubble, until a trial ends before it
// happened. Stride returns how far on the next call is.
func EveryCall(t *testing.T, stride func(n int) int, trial func(t *testing.T, n int) (happened bool)) {
	t.Helper()
	for n := 1; ; n += stride(n) {
		happened := false
		t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { happened = trial(t, n) })
		})
		if !happened || t.Failed() {
			return
		}
	}
}

// Stride returns a stride of 1 or, with -short (which is for the race detector), of short.
func Stride(short int) func(n int) int {
	return func(int) int {
		if testing.Short() {
			return short
		}
		return 1
	}
}

// BeforeAndAfter runs f twice: for something that happens before a call, and for something
// that happens after it.
func BeforeAndAfter(t *testing.T, f func(t *testing.T, after bool)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect %t", after), func(t *testing.T) { f(t, after) })
	}
}

// Insist asks until the request has come to an end, as a person would. An op whose daemon
// died goes on without its caller.
func Insist(t *testing.T, ask func(try int) error) error {
	t.Helper()
	const tries, between = 7, 10 * time.Second
	for try := 0; ; try++ {
		err := ask(try)
		switch code := api.CodeOf(err); {
		case errors.Is(err, op.ErrStopped), errors.Is(err, op.ErrNotFound):
			Pass(between)
			return nil
		case code == api.CodeNeedsOperator, code == api.CodeInternal:
			t.Errorf("try %d: %v", try, err)
			return err
		case code != api.CodeHypervisorUnavailable && code != api.CodeRegistryUnavailable || try == tries-1:
			return err
		}
		Pass(between)
	}
}

// Recorder is the part of testing.TB that the fake's assertions need, for worlds that
// return an error instead of failing the test.
type Recorder struct {
	testing.TB
	Problems []error
}

// Helper implements testing.TB.
func (r *Recorder) Helper() {}

// Errorf implements testing.TB.
func (r *Recorder) Errorf(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Errorf(format, args...))
}

// EverySeed makes a trial for each of some seeds, in a bubble, until one fails. All that happens by
// chance in it comes from its seed.
func EverySeed(t *testing.T, seeds int, trial func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	seedtest.Every(t, seeds, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { trial(t, seedtest.Rand(seed)) })
	})
}

// SameTwice makes the trials of some seeds twice. It claims of each seed that it draws the same both
// times, as many times: what is arranged, and what is asked for, is the same. Of most seeds it claims
// that all calls of the hypervisor are the same, in the same order, which the trial returns.
// Not of every seed: goroutines that wake at the same moment of a bubble's time go on in an order
// that Go's scheduler chooses, so that what happens at the nth call may happen at that of another goroutine.
// A seed that has failed and does not fail again is one of those; it is made again some more times.
func SameTwice(t *testing.T, trial func(t *testing.T, rng *rand.Rand) (calls []string)) {
	t.Helper()
	same := 0
	made := seedtest.Every(t, 40, func(t *testing.T, seed uint64) {
		var drawn [2][]uint64
		var calls [2][]string
		for i := range calls {
			synctest.Test(t, func(t *testing.T) {
				rng, r := seedtest.NewRecorder(seed)
				calls[i] = trial(t, rng)
				drawn[i] = r.Drawn()
			})
		}
		if !slices.Equal(drawn[0], drawn[1]) {
			t.Errorf("it draws %d times, then %d times, and not the same", len(drawn[0]), len(drawn[1]))
		}
		if slices.Equal(calls[0], calls[1]) {
			same++
		}
	})
	t.Logf("the calls of %d of %d seeds were the same", same, made)
	if made > 10 && same <= made/2 {
		t.Errorf("the calls of %d of %d seeds were the same, want most", same, made)
	}
}
