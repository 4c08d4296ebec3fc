// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
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

// note takes in that a session polls, and says whether its host is two daemons only
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

// isDuplicated says whether two daemons poll as this host.
func (s *sessions) isDuplicated() bool {
	return !s.duplicated.IsZero() && time.Since(s.duplicated) < duplicateWithin
}

// DuplicateSessions are the ids of the hosts as which two daemons poll. Neither is given anything to
// do while that is so, for nobody can tell which of them has what is asked for.
func (r *Relay) DuplicateSessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := []string{}
	for id, h := range r.hosts {
		if h.sessions.isDuplicated() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// admitSession refuses a poll of a host that is two daemons, and has that known.
func (r *Relay) admitSession(ctx context.Context, hostID, session string) error {
	r.mu.Lock()
	h := r.host(hostID)
	news := h.sessions.note(session)
	two := h.sessions.isDuplicated()
	r.mu.Unlock()
	if news {
		r.cfg.Log.Error("two daemons work as one host: neither is asked for anything until one of them is gone", "host", hostID)
		if err := r.cfg.Store.AuditSeen(context.WithoutCancel(ctx), "host.two", "host/"+hostID); err != nil {
			r.cfg.Log.Warn("that two daemons work as one host was not audited", "host", hostID, "err", err)
		}
	}
	if two {
		return api.Errorf(api.CodeConflict, "two daemons ask for work as host %s: was its machine, or its certificate, copied? Give one of them a certificate and a host id of its own, or turn it off", hostID)
	}
	return nil
}
