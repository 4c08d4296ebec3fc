// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"time"
)

// Two machines with one certificate, as when one was copied, are one host to the
// registry. They are told by their sessions: that of a daemon which was restarted never
// comes back, so two that take turns are two daemons.

const (
	// duplicateWithin is how soon a session that was replaced has to come back twice, and
	// for how long after that its host counts as two.
	duplicateWithin = time.Minute
	// sessionsKept bounds how many sessions of a host are remembered.
	sessionsKept = 8
)

// sessions are those that polled for a host, the newest last.
type sessions struct {
	seen []string
	// back is when one that was replaced came back last, duplicated when that was the
	// second time within duplicateWithin.
	back, duplicated time.Time
}

// note takes in that a session polls, and reports whether its host is two daemons only
// since now. One poll of a dead daemon may come late, so one return is none.
func (s *sessions) note(session string) (news bool) {
	at := slices.Index(s.seen, session)
	newest := len(s.seen) - 1
	if at >= 0 && at == newest {
		return false
	}
	if at >= 0 {
		s.seen = slices.Delete(s.seen, at, at+1)
	}
	s.seen = append(s.seen, session)
	s.seen = s.seen[max(0, len(s.seen)-sessionsKept):]
	if at < 0 {
		return false
	}
	again := !s.back.IsZero() && time.Since(s.back) < duplicateWithin
	s.back = time.Now()
	if !again {
		return false
	}
	news = !s.isDuplicated()
	s.duplicated = s.back
	return news
}

// isDuplicated reports whether two daemons poll as this host.
func (s *sessions) isDuplicated() bool {
	return !s.duplicated.IsZero() && time.Since(s.duplicated) < duplicateWithin
}
