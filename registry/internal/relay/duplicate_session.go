// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"time"
)

// Two machines with one certificate, such as a copied machine, are one host to the registry. Their
// sessions distinguish them: a restarted daemon's session never returns, so alternating sessions
// are two daemons.

const (
	// duplicateWithin is the time within which a replaced session must return twice to prove a
	// duplicate, and how long the proof lasts.
	duplicateWithin = time.Minute
	sessionsKept    = 8
)

type sessions struct {
	seen []string
	// back is the last time a replaced session returned. duplicated is the last time a second
	// return within duplicateWithin proved a duplicate.
	back, duplicated time.Time
}

// note records a poll of a session, and reports whether it proves a new duplicate: a replaced
// session has returned twice. One return may be a late poll of a dead daemon.
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

func (s *sessions) isDuplicated() bool {
	return !s.duplicated.IsZero() && time.Since(s.duplicated) < duplicateWithin
}
