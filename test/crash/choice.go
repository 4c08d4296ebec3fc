// SPDX-License-Identifier: Apache-2.0

// Package crash chooses for the tests of make test-crash, and for others that choose by a seed,
// where they strike, in which order, and for how long. It is for tests alone, and knows nothing of
// what they do.
package crash

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Env is the variable that has the tests of make test-crash run, which strike at every point and in
// every way if it is "all". If it is a duration, each of them begins no blow after it, and takes
// its points in an order that follows from SeedEnv. Without it behind every third effect of some
// tests something dies, where the journal does not know of the effect yet, and behind every one
// while the guest is paused. With -short, as in make test, that is behind every seventh, and, of
// those while the guest is paused, not behind the pause itself and what only waits in it.
const Env = "VOLFERRY_CRASH"

// Every reports whether every point may be struck at.
func Every() bool { return os.Getenv(Env) != "" }

// SeedEnv is the number from which all follows that a test chooses by chance.
const SeedEnv = "VOLFERRY_SEED"

// Chance is where a test has its choices from, and the number that makes it choose as before.
func Chance(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedEnv, err)
		}
	}
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// untilEnv is until when, in seconds since 1970, the tests of make test-crash begin, in an order of
// chance. Those that have not begun then are left to another seed.
const untilEnv = "VOLFERRY_CRASH_UNTIL"

// LeftToAnotherSeed skips a test, or a part of it, for which make test-crash has no time any more.
func LeftToAnotherSeed(t *testing.T) {
	t.Helper()
	text := os.Getenv(untilEnv)
	if text == "" {
		return
	}
	until, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", untilEnv, err)
	}
	if time.Now().After(time.Unix(until, 0)) {
		t.Skip("SKIPPED: the time of make test-crash is over; another SEED begins with other tests")
	}
}

// InTime calls strike for each of the places, or in an order of chance for those that there is time
// for, until it returns false. It returns for how many it was called.
func InTime[P any](t *testing.T, places []P, strike func(P) bool) int {
	t.Helper()
	text, over := os.Getenv(Env), func() bool { return false }
	if text != "" && text != "all" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(length)
		over = func() bool { return time.Now().After(until) }
		rnd, seed := Chance(t)
		t.Logf("as many of %d points as %s has time for; the same order again: make test-crash CRASH=%s SEED=%d", len(places), length, length, seed)
		shuffled := make([]P, len(places))
		for i, from := range rnd.Perm(len(places)) {
			shuffled[i] = places[from]
		}
		places = shuffled
	}
	for i, p := range places {
		if i > 0 && over() {
			return i
		}
		if !strike(p) {
			return i + 1
		}
	}
	return len(places)
}

// LeftToTestCrash skips a test that is not part of make test.
func LeftToTestCrash(t *testing.T) {
	t.Helper()
	if !Every() {
		t.Skip("SKIPPED: left to make test-crash")
	}
}
