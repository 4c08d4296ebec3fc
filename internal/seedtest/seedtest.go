// SPDX-License-Identifier: Apache-2.0

// Package seedtest makes the trials of simulations that choose by chance: one for each of some
// seeds. It knows nothing of what they simulate.
package seedtest

import (
	"fmt"
	"math/rand/v2"
	"os"
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

// Every makes a trial for each of some seeds, until one fails, and returns how many it made. The seed
// is in the name of the trial; VOLFERRY_SEED=17 and VOLFERRY_SEEDS=1 make that of seed 17 alone.
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
