// SPDX-License-Identifier: Apache-2.0

// Package seedtest makes the trials of simulations that choose by chance: one for each of some
// seeds. It knows nothing of what they simulate.
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

// The variables of make test-simulation and make test-seeds: how many seeds each simulation has, if
// not its own number, and which one is the first.
const (
	seedsVar     = "VOLFERRY_SEEDS"
	firstSeedVar = "VOLFERRY_SEED"
)

// Every makes a trial for each of some seeds, until one fails, and returns how many it made. The
// seed is in the name of the trial; VOLFERRY_SEED=17 and VOLFERRY_SEEDS=1 make that of seed 17
// alone.
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

// number is that of a variable, or what it is without.
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

// Rand is the chance of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// RandOf is the chance of a seed for one thing of a trial, by its name. It is the same whenever and
// in whatever order the things come: for what goroutines draw that are at work at once.
func RandOf(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// SameTwice makes the trials of some seeds twice. It claims of each seed that it draws the same
// both times, as many times: what is arranged, and what is asked for, is the same. Of most seeds it
// claims that all that happened is the same, in the same order, which the trial returns beside its
// draws. Not of every seed: goroutines that wake at the same moment of a bubble's time go on in an
// order that Go's scheduler chooses, so that what happens to the nth of them may happen to another
// one. A seed that has failed and does not fail again is one of those; it is made again some more
// times.
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

// Recorder is the chance of a seed that remembers what it drew.
type Recorder struct {
	source rand.Source
	drawn  []uint64
}

// NewRecorder returns the chance of Rand, and what remembers its draws.
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

// Drawn is what was drawn so far, in this order.
func (r *Recorder) Drawn() []uint64 { return r.drawn }
