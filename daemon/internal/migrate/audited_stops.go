// SPDX-License-Identifier: Apache-2.0

package migrate

import "sync"

// stops has the standstills that are in the audit trail: the stopped op of each migration.
type stops struct {
	mu    sync.Mutex
	known map[string]string
}

// noteStop records the op at a migration's standstill, or "" for none, and reports whether that is
// new.
func (s *stops) noteStop(migration, op string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]string{}
	}
	if s.known[migration] == op {
		return false
	}
	s.known[migration] = op
	return op != ""
}
