// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"testing"
	"time"
)

func TestClockIsAheadByNoMoreThanAnAnswerProves(t *testing.T) {
	sent := time.Date(2026, 1, 12, 9, 0, 0, 500e6, time.UTC)
	received := sent.Add(2 * time.Second)
	for date, want := range map[time.Time]time.Duration{
		sent.Truncate(time.Second): 0, // the header has whole seconds
		received:                   0,
		received.Add(time.Minute):  time.Minute - 500*time.Millisecond,
		sent.Add(-time.Minute):     -time.Minute + 500*time.Millisecond,
	} {
		var c Client
		c.clock.note(http.Header{"Date": {date.Format(http.TimeFormat)}}, sent, received)
		if got, known := c.ClockAhead(); !known || got != want {
			t.Errorf("an answer of %s between %s and %s: ahead by %s (%v), want %s", date, sent, received, got, known, want)
		}
	}
	var c Client
	c.clock.note(http.Header{}, sent, received)
	if _, known := c.ClockAhead(); known {
		t.Error("an answer without a date says how late it is")
	}
}
