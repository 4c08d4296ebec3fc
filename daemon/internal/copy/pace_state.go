// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"fmt"
	"time"
)

// PaceDoing is what a pacer does.
type PaceDoing string

// What a pacer does. It keeps a share of the copy's speed where the guest still suffers, lets the
// copy go where the guest suffers as much beside a slow one, and has a block job catch up with a
// guest that would outrun it.
const (
	PaceFree        PaceDoing = "free"
	PaceMeasures    PaceDoing = "measures"
	PaceGivesWay    PaceDoing = "gives_way"
	PaceKeepsShare  PaceDoing = "keeps_share"
	PaceDoesNotHelp PaceDoing = "does_not_help"
	PaceCatchesUp   PaceDoing = "catches_up"
)

// requestKinds are the kinds of GuestLatency, in its order.
var requestKinds = [...]string{"reads", "writes", "flushes"}

// PacedStates returns the states of a copy beside a guest that minds it, without latencies.
func PacedStates() []PaceState {
	states := []PaceState{{Doing: PaceMeasures}, {Doing: PaceCatchesUp}}
	for _, requests := range requestKinds {
		for _, doing := range []PaceDoing{PaceGivesWay, PaceKeepsShare, PaceDoesNotHelp} {
			states = append(states, PaceState{Doing: doing, Requests: requests})
		}
	}
	return states
}

// PaceState is what a pacer does, and why: a mean latency of the guest's requests of one kind,
// and the latency that is tolerated.
type PaceState struct {
	Doing           PaceDoing
	Requests        string // reads, writes or flushes
	Mean, Tolerated time.Duration
}

// String says it in words, "" where the guest does not mind the copy.
func (s PaceState) String() string {
	why := fmt.Sprintf("the guest's %s take %.1f ms, and %.1f ms are tolerated", s.Requests, millis(s.Mean), millis(s.Tolerated))
	switch s.Doing {
	case PaceMeasures:
		return "measures the guest's latency"
	case PaceGivesWay:
		return "gives way: " + why
	case PaceKeepsShare:
		return "gives way no further: " + why
	case PaceDoesNotHelp:
		return "does not give way, which did not pay: " + why
	case PaceCatchesUp:
		return "gives way no further: it has to catch up with what the guest writes"
	case PaceFree:
	}
	return ""
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
