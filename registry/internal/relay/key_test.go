// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"testing"
	"time"
)

// A change with a key like the id of a read would be handed out and answered as a read, and not
// stored.
func TestAChangeIsNotTakenForARead(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.fetch(t, hostA, "s1", 0)
		done := s.begin(t.Context(), change("read-1"))
		if tasks := s.fetch(t, hostA, "s1", time.Second); len(tasks) > 0 {
			t.Errorf("the host was given %v", tasks)
		}
		want(t, "refusal", (<-done).String(), "invalid_argument maybe_done=false after 0s")
		want(t, "stored", s.tasks.states(), "")
	})
}
