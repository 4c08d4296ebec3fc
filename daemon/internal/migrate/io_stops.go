// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"sync"
	"time"
)

const (
	// overlayWatchEvery is how often is looked without an event, and overlayPoll the same
	// while a guest stands still.
	overlayWatchEvery = 30 * time.Second
	overlayPoll       = 5 * time.Second
)

// ioStop is a guest that an I/O error has paused while its newest writes were in an
// overlay.
type ioStop struct {
	// text says so, "" while the guest runs.
	text string
	// full: there was no room for the overlay while the guest stood still. Nothing else
	// than that is mended by room.
	full    bool
	resumes int
	// resumeAfter is when it may be resumed again.
	resumeAfter time.Time
}

// ioStops are the guests that stand still, by migration. Losing them loses the count of
// resumes, and of a guest whose overlay had room again before anybody looked, why it
// stands still.
type ioStops struct {
	mu   sync.Mutex
	byID map[string]*ioStop
}

// get returns a copy, nil if there is none.
func (s *ioStops) get(id string) *ioStop {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.byID[id]; stop != nil {
		is := *stop
		return &is
	}
	return nil
}

// set keeps what is known of a guest, nil for nothing.
func (s *ioStops) set(id string, is *ioStop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*ioStop{}
	}
	if s.byID[id] = is; is == nil {
		delete(s.byID, id)
	}
}

// keep forgets all but these: the others are over.
func (s *ioStops) keep(open map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byID, func(id string, _ *ioStop) bool { return !open[id] })
}

func (s *ioStops) every() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) > 0 {
		return overlayPoll
	}
	return overlayWatchEvery
}
