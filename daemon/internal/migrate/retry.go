// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"sync"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// maxRetryDelay bounds the delay between two attempts to begin an op: a host that was fenced
// begins nothing before it has rejoined.
const maxRetryDelay = 10 * time.Second

// retries has the migrations whose next op could not be begun.
type retries struct {
	mu   sync.Mutex
	byID map[string]*attempts
}

// why returns why the next op of a migration could not be begun when that was last tried, nil if
// it was begun.
func (s *retries) why(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[id]; t != nil {
		return t.why
	}
	return nil
}

// attempts are the attempts of one migration since expedite was called last.
type attempts struct {
	n       int
	why     error // of the last one
	backoff retry.Backoff
	next    *time.Timer
}

// schedule counts an attempt that failed, and has f called when the next one is due.
func (s *retries) schedule(id string, why error, f func()) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byID[id]
	if t == nil {
		t = &attempts{backoff: retry.Backoff{First: replanDelay, Max: maxRetryDelay}}
		if s.byID == nil {
			s.byID = map[string]*attempts{}
		}
		s.byID[id] = t
	} else {
		t.next.Stop()
	}
	t.next = time.AfterFunc(t.backoff.Next(), f)
	t.why = why
	t.n++
	return t.n
}

// forget forgets a migration that went on.
func (s *retries) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[id]; t != nil {
		t.next.Stop()
		delete(s.byID, id)
	}
}

// expedite has all migrations tried soon, since something has changed.
func (s *retries) expedite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byID {
		t.n = 0
		t.backoff.Reset()
		t.next.Reset(replanDelay)
	}
}

// replanDelay, times the number of plans in a row, is the delay before another plan: an
// instance may be restarted in a loop.
const replanDelay = 100 * time.Millisecond
