// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxReplanDelay is how far the tries of what cannot be begun come apart: a host
// that was fenced begins nothing before it has rejoined.
const maxReplanDelay = 10 * time.Second

// stalled has the migrations whose next op could not be begun.
type stalled struct {
	mu  sync.Mutex
	all map[string]*tries
}

// tries are those of one migration since there was news.
type tries struct {
	n    int
	next *time.Timer
}

// again counts a try that failed, and has f called when the next is due.
func (s *stalled) again(id string, f func()) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[id]
	if t == nil {
		t = &tries{}
		if s.all == nil {
			s.all = map[string]*tries{}
		}
		s.all[id] = t
	} else {
		t.next.Stop()
	}
	t.next = time.AfterFunc(min(replanDelay<<min(t.n, 10), maxReplanDelay), f)
	t.n++
	return t.n
}

// over forgets a migration that went on.
func (s *stalled) over(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[id]; t != nil {
		t.next.Stop()
		delete(s.all, id)
	}
}

// hurry has all of them tried soon: there is news.
func (s *stalled) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		t.n = 0
		t.next.Reset(replanDelay)
	}
}

// tryAgain has advance called again after a while, a longer one each time. It is
// said once: a fence may last for hours.
func (m *Manager) tryAgain(id string, why error) {
	n := m.stalled.again(id, func() { m.watch.notify(id) })
	level := slog.LevelDebug
	if n == 1 {
		level = slog.LevelWarn
	}
	m.log.Log(context.Background(), level, "cannot go on with a migration yet", "migration", id, "try", n, "err", why)
}
