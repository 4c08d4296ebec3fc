// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"testing"
	"time"
)

// SmallOffloads bounds the requests to a storage to n bytes, until the test ends.
func SmallOffloads(t *testing.T, n int64) {
	t.Helper()
	was := maxOffloadPiece
	maxOffloadPiece = n
	t.Cleanup(func() { maxOffloadPiece = was })
}

// dutyPacer lets a copy work for a part of the time.
type dutyPacer struct {
	Pacer

	duty float64
}

func (dutyPacer) Allow() (int64, time.Duration) { return maxInFlight, 0 }
func (p dutyPacer) Duty() float64               { return p.duty }

// TestAnOffloadRestsBehindAPiece as long as the guest needs it.
func TestAnOffloadRestsBehindAPiece(t *testing.T) {
	o := &offloader{spec: &Spec{Pace: dutyPacer{duty: 0.5}}}
	began := time.Now()
	if err := o.rest(t.Context(), 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("it has rested for %s behind 200 ms of work, with half of the time for itself", took)
	}
}
