// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"sync/atomic"
	"time"
)

type clock struct{ ahead atomic.Pointer[time.Duration] }

// note reads the time of an answer. The server made the answer between sent and now; the Date
// header has whole seconds, so the time may be up to a second early.
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
