// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// PauseStep is an event while the guests of a move are paused. Without Host the move reached a
// phase; with Host the host finished a call, or an instance there reached a state. TookMS is the
// host's own time in milliseconds, without the registry and the network.
type PauseStep struct {
	At       time.Time `json:"at"`
	Phase    string    `json:"phase"`
	Reached  string    `json:"reached"`
	Host     string    `json:"host,omitempty"`
	Instance string    `json:"instance,omitempty"`
	TookMS   int64     `json:"took_ms,omitempty"`
}

// PauseRestored is the value of Reached when an instance runs again.
const PauseRestored = "restored"

// StoodStill returns how long the guests were paused in the last pause of these steps, until the
// last guest ran again, as the registry saw it. It is 0 if that pause has not ended.
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
