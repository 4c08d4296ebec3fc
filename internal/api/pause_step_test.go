// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"
	"time"
)

func TestTheSilenceOfAMoveIsThatOfItsLastPause(t *testing.T) {
	at := func(s int, reached, host string) PauseStep {
		return PauseStep{At: time.Unix(int64(s), 0), Reached: reached, Host: host}
	}
	called := []PauseStep{at(1, "suspending", ""), at(2, "suspended", "a"), at(3, "again", ""), at(4, PauseRestored, "a")}
	under := append(called, at(10, "suspending", ""), at(12, "saved", "a"))
	over := append(under, at(15, PauseRestored, "a"), at(17, PauseRestored, "b"))
	for name, tc := range map[string]struct {
		steps []PauseStep
		want  time.Duration
	}{
		"none": {nil, 0}, "called off": {called, 3 * time.Second}, "under way": {under, 0}, "over": {over, 7 * time.Second},
	} {
		if got := StoodStill(tc.steps); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
