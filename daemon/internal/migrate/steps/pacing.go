// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/volferry/volferry/daemon/internal/copy"

// Pacing is what slows down a copy or a block job now, mostly the needs of its guest, and why. It
// is zero if nothing does.
type Pacing struct {
	PacingKind

	Words string
}

// PacingKind is the part of a Pacing for programs.
type PacingKind struct {
	Doing    string
	Requests string // reads, writes or flushes, if their latency is the reason
}

// Reasons for a slow job, other than a pacer.
const (
	doingThrottlesGuest = "throttles_guest"
	doingWaitsForDst    = "waits_for_dst"
	doingStandsStill    = "stands_still"
)

// PacingKinds returns all kinds.
func PacingKinds() []PacingKind {
	kinds := []PacingKind{{Doing: doingThrottlesGuest}, {Doing: doingWaitsForDst}, {Doing: doingStandsStill}}
	for _, s := range copy.PacedStates() {
		kinds = append(kinds, pacingKind(s))
	}
	return kinds
}

func pacingIf(doing, words string) Pacing {
	if words == "" {
		return Pacing{}
	}
	return Pacing{PacingKind{Doing: doing}, words}
}

func pacingOf(s copy.PaceState) Pacing {
	words := s.String()
	if words == "" {
		return Pacing{}
	}
	return Pacing{pacingKind(s), words}
}

func pacingKind(s copy.PaceState) PacingKind {
	return PacingKind{Doing: string(s.Doing), Requests: s.Requests}
}
