// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// PauseStep is something that was reached at this time while the guests of a move stand still:
// a phase by the move, if it has no Host, a call by a host, or a state by an instance there.
// TookMS is how long the host worked on it, by its own clock; what is between two steps beyond
// that are the registry, and the way to the host and back.
type PauseStep struct {
	At       time.Time `json:"at"`
	Phase    string    `json:"phase"`
	Reached  string    `json:"reached"`
	Host     string    `json:"host,omitempty"`
	Instance string    `json:"instance,omitempty"`
	TookMS   int64     `json:"took_ms,omitempty"`
}

// PauseRestored is what an instance has reached that runs on.
const PauseRestored = "restored"

// StoodStill returns for how long, at most, a guest of the last pause among these steps has stood
// still, as the registry saw it; 0 if there was none, or it is not over.
func StoodStill(steps []PauseStep) time.Duration {
	var began, ended time.Time
	for _, s := range steps {
		switch {
		case s.Host == "" && s.Reached == "suspending":
			began, ended = s.At, time.Time{}
		case s.Reached == PauseRestored:
			ended = s.At
		}
	}
	if began.IsZero() || ended.IsZero() {
		return 0
	}
	return ended.Sub(began)
}
