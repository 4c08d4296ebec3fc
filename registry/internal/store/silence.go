// SPDX-License-Identifier: Apache-2.0

package store

import "time"

const (
	// quietReports is how many reports a second all hosts together make that have nothing new
	// to say. It bounds what they cost, and how old the newest mark is that a host has.
	quietReports = 50
	// shortestQuiet and longestQuiet bound how often a host reports that has nothing new to say.
	// Daemons have the same bounds; those of before have a minute at the most.
	shortestQuiet = 5 * time.Second
	longestQuiet  = 5 * time.Minute
)

// reportEvery is how often each host should report while it has nothing new to say.
func (s *Store) reportEvery() time.Duration {
	share := time.Duration(s.hosts.Len()) * time.Second / quietReports
	return min(max(shortestQuiet, share.Truncate(time.Second)), longestQuiet)
}

const (
	// suspectMargin and upMargin are how much longer than usual a host may be silent, before it is
	// suspect, and for it to count as one that is up when it is fenced.
	suspectMargin = 25 * time.Second
	upMargin      = 10 * time.Second
)

// isSilent reports whether nothing has come of a host for longer than usual by margin. One whose
// wait for tasks broke off calls again at once if it is there, however rarely hosts are to report.
func (s *Store) isSilent(hostID string, last time.Time, margin time.Duration) bool {
	now := s.now()
	if now.Sub(last) > s.reportEvery()+margin {
		return true
	}
	at, broke := s.hosts.BrokeOff(hostID)
	return broke && now.Sub(at) > shortestQuiet+margin
}

// isSuspect reports whether a host that was last seen at last is silent for too long. It is suspect
// then and no more: what it holds stays held until an operator says that it is fenced.
func (s *Store) isSuspect(hostID string, last time.Time) bool {
	return s.isSilent(hostID, last, suspectMargin)
}

// isUp reports whether a host that was last seen at last is there, as far as is known, so that an
// operator who fences it is asked whether it is the right one.
func (s *Store) isUp(hostID string, last time.Time) bool { return !s.isSilent(hostID, last, upMargin) }

// Waits notes that a host which was admitted waits for tasks: it is there, as if it had reported.
func (s *Store) Waits(hostID string) { s.hosts.Touch(hostID, s.now()) }

// BrokeOff notes that the connection broke on which a host waited for tasks. It does not block.
func (s *Store) BrokeOff(hostID string) { s.hosts.NoteBreak(hostID, s.now()) }
