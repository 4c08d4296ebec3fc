// SPDX-License-Identifier: Apache-2.0

// Package seedtest runs the trials of randomized simulations, one for each seed.
package seedtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The variables of make test-simulation and make test-seeds: the number of seeds of each
// simulation, and the first seed.
const (
	seedsVar     = "VOLFERRY_SEEDS"
	firstSeedVar = "VOLFERRY_SEED"
)

// Every runs a trial for each of some seeds until one fails, and returns their number. The seed is
// in the name of the trial; VOLFERRY_SEED=17 and VOLFERRY_SEEDS=1 run only seed 17.
func Every(t *testing.T, seeds int, trial func(t *testing.T, seed uint64)) (made int) {
	t.Helper()
	first := number(t, firstSeedVar, 0)
	seeds = number(t, seedsVar, seeds)
	began := time.Now()
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { trial(t, uint64(seed)) })
		if t.Failed() {
			t.Fatalf("the same again: %s=%d %s=1 go test -run '^%s$'", firstSeedVar, seed, seedsVar, t.Name())
		}
	}
	t.Logf("%d seeds from %d on in %s", seeds, first, time.Since(began).Round(time.Millisecond))
	return seeds
}

func number(t *testing.T, name string, without int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return without
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return int(n)
}

// Rand returns the random numbers of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// RandOf returns the random numbers of a seed for one named thing of a trial. They do not depend
// on the order of things, so concurrent goroutines may draw them.
func RandOf(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// SameTwice runs the trial of each seed twice. Both runs must draw the same numbers, so that setup
// and requests are the same. For most seeds all events, which the trial returns after its draws,
// must be the same in the same order. Not for every seed: Go's scheduler chooses the order of
// goroutines that wake at the same moment of a bubble's time. A failed seed that does not fail
// again is such a seed; run it some more times.
func SameTwice(t *testing.T, seeds int, trial func(t *testing.T, seed uint64) (drawn []uint64, happened []string)) {
	t.Helper()
	same := 0
	made := Every(t, seeds, func(t *testing.T, seed uint64) {
		drawn, happened := trial(t, seed)
		drawnAgain, happenedAgain := trial(t, seed)
		if !slices.Equal(drawn, drawnAgain) {
			t.Errorf("it draws %d times, then %d times, and not the same", len(drawn), len(drawnAgain))
		}
		if slices.Equal(happened, happenedAgain) {
			same++
		}
	})
	t.Logf("what happened in %d of %d seeds was the same", same, made)
	if made > 10 && same <= made/2 {
		t.Errorf("what happened in %d of %d seeds was the same, want most", same, made)
	}
}

// Recorder records the random numbers of a seed.
type Recorder struct {
	source rand.Source
	drawn  []uint64
}

// NewRecorder returns the random numbers of Rand, and their recorder.
func NewRecorder(seed uint64) (*rand.Rand, *Recorder) {
	r := &Recorder{source: rand.NewPCG(seed, 1)}
	return rand.New(r), r
}

// Uint64 implements rand.Source.
func (r *Recorder) Uint64() uint64 {
	n := r.source.Uint64()
	r.drawn = append(r.drawn, n)
	return n
}

// Drawn returns the numbers drawn so far, in order.
func (r *Recorder) Drawn() []uint64 { return r.drawn }
