// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"sync"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

const maxRetryDelay = 10 * time.Second

// retries has the migrations with a next op that could not begin.
type retries struct {
	mu   sync.Mutex
	byID map[string]*attempts
}

// why returns the error of the last attempt to begin a migration's next op, nil if it has begun.
func (s *retries) why(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[id]; t != nil {
		return t.why
	}
	return nil
}

type attempts struct {
	n       int
	why     error
	backoff retry.Backoff
	next    *time.Timer
}

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

func (s *retries) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[id]; t != nil {
		t.next.Stop()
		delete(s.byID, id)
	}
}

func (s *retries) expedite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byID {
		t.n = 0
		t.backoff.Reset()
		t.next.Reset(replanDelay)
	}
}

// replanDelay, times history.Replans, delays another plan: an instance may restart in a loop.
const replanDelay = 100 * time.Millisecond
