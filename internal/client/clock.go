// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is what the answers of a daemon say of its clock.
type clock struct{ ahead atomic.Pointer[time.Duration] }

// note takes the time at which an answer was made, which is some time between sent and
// now. The header has whole seconds, so it may be a second early.
func (c *clock) note(header http.Header, sent, now time.Time) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	var ahead time.Duration
	switch {
	case at.After(now):
		ahead = at.Sub(now)
	case at.Add(time.Second).Before(sent):
		ahead = at.Add(time.Second).Sub(sent)
	}
	c.ahead.Store(&ahead)
}

// ClockAhead says by how much, at least, the daemon's clock is ahead of this one, less than
// 0 if it is behind, as of its last answer; false if there was none.
func (c *Client) ClockAhead() (time.Duration, bool) {
	ahead := c.clock.ahead.Load()
	if ahead == nil {
		return 0, false
	}
	return *ahead, true
}
