// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// gatherFor is Options.GatherFor in these tests.
const gatherFor = time.Millisecond

// gathering returns a ledger in a bubble, with a last commit of this many changes.
func gathering(t *testing.T, last int) (l *Ledger, batches *[]int) {
	t.Helper()
	batches = &[]int{}
	l = newLedger(t, Options{GatherFor: gatherFor, OnCommit: func(n int, _ time.Duration) { *batches = append(*batches, n) }})
	first, release := blockWriter(t, l)
	waiting := []submission{first}
	for n := range last {
		waiting = append(waiting, queueChange(t, l, insertThing(fmt.Sprint("before", n))))
	}
	release()
	for _, c := range waiting {
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
	}
	*batches = nil
	return l, batches
}

func TestWhoIsAloneWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, batches := gathering(t, 1)
		begin := time.Now()
		for n := range 3 {
			if err := l.Submit(t.Context(), insertThing(fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != 0 || !slices.Equal(*batches, []int{1, 1, 1}) {
			t.Errorf("changes that came one after the other took %s in commits of %v, want no time", took, *batches)
		}
	})
}

func TestACommitWaitsForAsManyAsSharedTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 3
		l, batches := gathering(t, last)
		begin := time.Now()
		var waiting []submission
		for n := range last {
			time.Sleep(gatherFor / last / 2) //nolint:forbidigo // fake time
			waiting = append(waiting, queueChange(t, l, insertThing(fmt.Sprint(n))))
		}
		for _, c := range waiting {
			if err := <-c.done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took >= gatherFor || !slices.Equal(*batches, []int{last}) {
			t.Errorf("%d changes took %s in commits of %v, want one commit as soon as all were there", last, took, *batches)
		}
	})
}

func TestACommitWaitsAMomentAndOnlyOnceWhereTheOthersAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, batches := gathering(t, 3)
		for n, want := range []time.Duration{gatherFor, 0} {
			begin := time.Now()
			if err := l.Submit(t.Context(), insertThing(fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took != want {
				t.Errorf("change %d took %s, want %s", n, took, want)
			}
		}
		if !slices.Equal(*batches, []int{1, 1}) {
			t.Errorf("commits of %v, want each change in its own", *batches)
		}
	})
}
