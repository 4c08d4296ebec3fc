// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// crashEnv has the tests of make test-crash run, which strike at every point and in every way if
// it is "all". If it is a duration, each of them begins no blow after it, and takes its points in
// an order that follows from seedEnv. Without it behind every third effect of some tests something
// dies, where the journal does not know of the effect yet, and behind every one while the guest is
// paused. With -short, as in make test, that is behind every seventh, and, of those while the guest is
// paused, not behind the pause itself and what only waits in it.
const crashEnv = "VOLFERRY_CRASH"

// everyCrash says whether every point may be struck at.
func everyCrash() bool { return os.Getenv(crashEnv) != "" }

// seedEnv is the number from which all follows that a test chooses by chance.
const seedEnv = "VOLFERRY_SEED"

// chance is where a test has its choices from, and the number that makes it choose as before.
func chance(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// withinEnv is how long the tests of make test-crash begin, in an order of chance. Those that have not
// begun then are left to another seed.
const withinEnv = "VOLFERRY_CRASH_WITHIN"

var testsBegan = time.Now()

// leftToAnotherSeed skips a test, or a part of it, for which make test-crash has no time any more.
func leftToAnotherSeed(t *testing.T) {
	t.Helper()
	text := os.Getenv(withinEnv)
	if text == "" {
		return
	}
	within, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(testsBegan) > within {
		t.Skipf("SKIPPED: the %s of make test-crash are over; another SEED begins with other tests", within)
	}
}

// inTime calls strike for each of the places, or in an order of chance for those that there is time
// for, until it returns false. It returns for how many it was called.
func inTime[P any](t *testing.T, places []P, strike func(P) bool) int {
	t.Helper()
	text, over := os.Getenv(crashEnv), func() bool { return false }
	if text != "" && text != "all" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(length)
		over = func() bool { return time.Now().After(until) }
		rnd, seed := chance(t)
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

func TestASeriesOfDeathsHasAllPointsInTheirOrderOrThoseOfItsTimeInOneOfItsSeed(t *testing.T) {
	way := make([]int, 50)
	for i := range way {
		way[i] = i
	}
	order := func(crash, seed string) (struck []int) {
		t.Helper()
		t.Setenv(crashEnv, crash)
		t.Setenv(seedEnv, seed)
		if n := inTime(t, way, func(p int) bool { struck = append(struck, p); return true }); n != len(struck) {
			t.Errorf("%d were struck at, it says %d", len(struck), n)
		}
		return struck
	}
	for _, whole := range []string{"all", ""} {
		if got := order(whole, "7"); !slices.Equal(got, way) {
			t.Errorf("with %q: %v, want all in their order", whole, got)
		}
	}
	if got := order("0s", "7"); len(got) != 1 {
		t.Errorf("without time: %v, want one", got)
	}
	seven := order("1h", "7")
	if sorted := slices.Sorted(slices.Values(seven)); !slices.Equal(sorted, way) || slices.Equal(seven, way) {
		t.Errorf("with time for all: %v, want each once, in another order", seven)
	}
	if !slices.Equal(seven, order("1h", "7")) || slices.Equal(seven, order("1h", "8")) {
		t.Error("the order does not follow from the seed")
	}
	if n := inTime(t, way, func(int) bool { return false }); n != 1 {
		t.Errorf("%d were struck at after it said no", n)
	}
}
