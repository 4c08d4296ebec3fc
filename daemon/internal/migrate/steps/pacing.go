// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/volferry/volferry/daemon/internal/copy"

// Pacing is what holds a copy or a block job back now, for its guest's sake above all, and why. It
// is zero where nothing does.
type Pacing struct {
	PacingKind

	Words string
}

// PacingKind is a Pacing for programs.
type PacingKind struct {
	Doing    string
	Requests string // reads, writes or flushes, where the guest's latency of these is why
}

// What holds a job back beside what a pacer does.
const (
	doingThrottlesGuest = "throttles_guest"
	doingWaitsForDst    = "waits_for_dst"
	doingStandsStill    = "stands_still"
)

// PacingKinds returns all that there are.
func PacingKinds() []PacingKind {
	kinds := []PacingKind{{Doing: doingThrottlesGuest}, {Doing: doingWaitsForDst}, {Doing: doingStandsStill}}
	for _, s := range copy.PacedStates() {
		kinds = append(kinds, pacingKind(s))
	}
	return kinds
}

// pacingIf is that, and zero without words.
func pacingIf(doing, words string) Pacing {
	if words == "" {
		return Pacing{}
	}
	return Pacing{PacingKind{Doing: doing}, words}
}

// pacingOf is what a pacer does.
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
