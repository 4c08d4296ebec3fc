// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"maps"
	"sync"
	"time"
)

const (
	// OverlayWatchEvery is the interval of looks at the guests without an event.
	OverlayWatchEvery = 30 * time.Second
	// OverlayPoll is the interval while a guest is paused by an I/O error.
	OverlayPoll = 5 * time.Second
)

// ioStop is a guest that an I/O error has paused while its newest writes were in an overlay.
type ioStop struct {
	// text describes it, "" while the guest runs.
	text string
	// full: the overlay had no space while the guest was paused. Only then is the guest resumed
	// when there is space.
	full    bool
	resumes int
	// resumeAfter is when the guest may be resumed again.
	resumeAfter time.Time
}

// ioStops are the guests that an I/O error has paused, by migration. A restart loses the count of
// resumes, and that an overlay was full if it has space again before the next look.
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

// keep forgets the guests of all other migrations, which have ended.
func (s *ioStops) keep(open map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byID, func(id string, _ *ioStop) bool { return !open[id] })
}

func (s *ioStops) every() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) > 0 {
		return OverlayPoll
	}
	return OverlayWatchEvery
}
