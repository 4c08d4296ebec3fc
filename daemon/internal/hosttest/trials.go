// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/seedtest"
)

// Pass lets fake time pass in a bubble.
func Pass(d time.Duration) { <-time.After(d) }

// EveryCall makes trials, each in a bubble, with a happening at one call: first at call 1, then at
// a later call, and so on, until a trial ends before its happening. stride returns the distance to
// the next call.
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

// Stride returns a stride of 1. With -short, as for the race detector, the stride is short.
func Stride(short int) func(n int) int {
	return func(int) int {
		if testing.Short() {
			return short
		}
		return 1
	}
}

// BeforeAndAfter runs f twice, for a happening before a call's effect and after it.
func BeforeAndAfter(t *testing.T, f func(t *testing.T, after bool)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect %t", after), func(t *testing.T) { f(t, after) })
	}
}

// Insist repeats the request until it has ended, as a person would. If the daemon dies, the op
// outlives its caller.
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

// Recorder implements the part of testing.TB that the fake uses, for worlds that return errors.
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

// EverySeed makes a trial in a bubble for each of some seeds, until one fails. The seed determines
// every random choice.
func EverySeed(t *testing.T, seeds int, trial func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	seedtest.Every(t, seeds, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { trial(t, seedtest.Rand(seed)) })
	})
}

// SameTwice makes the check of seedtest.SameTwice with trials in a bubble, which return their
// hypervisor calls.
func SameTwice(t *testing.T, trial func(t *testing.T, rng *rand.Rand) (calls []string)) {
	t.Helper()
	seedtest.SameTwice(t, 40, func(t *testing.T, seed uint64) (drawn []uint64, calls []string) {
		rng, r := seedtest.NewRecorder(seed)
		synctest.Test(t, func(t *testing.T) { calls = trial(t, rng) })
		return r.Drawn(), calls
	})
}
