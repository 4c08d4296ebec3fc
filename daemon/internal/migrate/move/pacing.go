// SPDX-License-Identifier: Apache-2.0

package move

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// Pacing is the reason why a copy or a block job is slow now, mostly because its guest needs the
// storage. It is zero without a reason.
type Pacing struct {
	PacingKind

	Words string
}

// PacingKind is the part of a Pacing that programs read.
type PacingKind struct {
	Doing    string
	Requests string // reads, writes or flushes, if their latency is the reason
}

// These are reasons for a slow job other than a pacer.
const (
	DoingThrottlesGuest = "throttles_guest"
	DoingWaitsForDst    = "waits_for_dst"
	DoingStandsStill    = "stands_still"
)

// PacingKinds returns all possible kinds.
func PacingKinds() []PacingKind {
	kinds := []PacingKind{{Doing: DoingThrottlesGuest}, {Doing: DoingWaitsForDst}, {Doing: DoingStandsStill}}
	for _, s := range copy.PacedStates() {
		kinds = append(kinds, pacingKind(s))
	}
	return kinds
}

// PacingIf returns the pacing for a reason, or zero if words is empty.
func PacingIf(doing, words string) Pacing {
	if words == "" {
		return Pacing{}
	}
	return Pacing{PacingKind{Doing: doing}, words}
}

// PacingOf returns the pacing of a copy or job that yields to its guest, or zero.
func PacingOf(s copy.PaceState) Pacing {
	words := s.String()
	if words == "" {
		return Pacing{}
	}
	return Pacing{pacingKind(s), words}
}

func pacingKind(s copy.PaceState) PacingKind {
	return PacingKind{Doing: string(s.Doing), Requests: s.Requests}
}

// Milliseconds converts a duration for a step's output.
func Milliseconds(d time.Duration) *float64 {
	ms := float64(d) / float64(time.Millisecond)
	return &ms
}
