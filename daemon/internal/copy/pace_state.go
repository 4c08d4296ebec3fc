// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"fmt"
	"time"
)

// PaceDoing is a pacer's activity.
type PaceDoing string

// PaceKeepsShare: the guest still suffers, but the copy keeps its share of speed. PaceDoesNotHelp:
// the copy is not limited, because the guest suffers as much from a slow copy. PaceCatchesUp: a
// block job must be faster than the guest's writes.
const (
	PaceFree        PaceDoing = "free"
	PaceMeasures    PaceDoing = "measures"
	PaceGivesWay    PaceDoing = "gives_way"
	PaceKeepsShare  PaceDoing = "keeps_share"
	PaceDoesNotHelp PaceDoing = "does_not_help"
	PaceCatchesUp   PaceDoing = "catches_up"
)

var requestKinds = [...]string{"reads", "writes", "flushes"}

// PacedStates returns all states of a copy that affects its guest, without latencies.
func PacedStates() []PaceState {
	states := []PaceState{{Doing: PaceMeasures}, {Doing: PaceCatchesUp}}
	for _, requests := range requestKinds {
		for _, doing := range []PaceDoing{PaceGivesWay, PaceKeepsShare, PaceDoesNotHelp} {
			states = append(states, PaceState{Doing: doing, Requests: requests})
		}
	}
	return states
}

// PaceState is a pacer's activity and its reason: the mean latency of one kind of guest requests,
// and the tolerated latency.
type PaceState struct {
	Doing           PaceDoing
	Requests        string
	Mean, Tolerated time.Duration
}

// String describes the state, "" if the copy does not affect the guest.
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
