// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"maps"
	"sync"
	"time"
)

const (
	// OverlayWatchEvery is the interval of looks at guests on overlays.
	OverlayWatchEvery = 30 * time.Second
	// OverlayPoll is the interval of looks while an I/O error has paused a guest.
	OverlayPoll = 5 * time.Second
)

// ioStop is a guest that an I/O error has paused while an overlay had its newest writes.
type ioStop struct {
	// text describes the stop, "" while the guest runs.
	text string
	// full means that the overlay had no space. Only then the guest is resumed.
	full        bool
	resumes     int
	resumeAfter time.Time
}

// ioStops has the ioStop of each migration. A restart of the daemon loses the count of resumes
// and, if an overlay has space again, that it was full.
type ioStops struct {
	mu   sync.Mutex
	byID map[string]*ioStop
}

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
