// SPDX-License-Identifier: Apache-2.0

package store

import "time"

const (
	// quietReports is the target rate, per second, of unchanged reports of all hosts together. It
	// bounds their cost, and the age of the newest mark that some host has.
	quietReports = 50
	// shortestQuiet and longestQuiet bound the interval between unchanged reports. Daemons have
	// the same bounds.
	shortestQuiet = 5 * time.Second
	longestQuiet  = 5 * time.Minute
)

func (s *DB) reportEvery() time.Duration {
	share := time.Duration(s.hosts.Len()) * time.Second / quietReports
	return min(max(shortestQuiet, share.Truncate(time.Second)), longestQuiet)
}

const (
	// suspectMargin and upMargin are added to the report interval. A host that is silent for
	// longer is suspect (suspectMargin), or does not count as up when it is fenced (upMargin).
	suspectMargin = 25 * time.Second
	upMargin      = 10 * time.Second
)

// isSilent reports whether the host has been silent for longer than its report interval plus
// margin. If the connection of its wait for tasks broke, shortestQuiet replaces the interval,
// because a host that is up reconnects at once.
func (s *DB) isSilent(hostID string, last time.Time, margin time.Duration) bool {
	now := s.now()
	if now.Sub(last) > s.reportEvery()+margin {
		return true
	}
	at, broke := s.hosts.BrokeOff(hostID)
	return broke && now.Sub(at) > shortestQuiet+margin
}

// isSuspect reports whether the host, last seen at last, has been silent for too long. A suspect
// host keeps its locks until an operator fences it.
func (s *DB) isSuspect(hostID string, last time.Time) bool {
	return s.isSilent(hostID, last, suspectMargin)
}

// isUp reports whether the host counts as up. An operator who fences such a host must confirm that
// it is the right one.
func (s *DB) isUp(hostID string, last time.Time) bool { return !s.isSilent(hostID, last, upMargin) }
