// SPDX-License-Identifier: Apache-2.0

package migrate

import "sync"

// stops remembers which standstills the audit trail was told of: the op of each, by the
// migration.
type stops struct {
	mu    sync.Mutex
	known map[string]string
}

// noteStop remembers that op, or none, is what the migration stands at. It returns true if
// that is new.
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
