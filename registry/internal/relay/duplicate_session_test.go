// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

func (s *site) polls(t *testing.T, session string) error {
	t.Helper()
	_, err := s.Fetch(t.Context(), store.Call{}, hostA, session, 0, admitted)
	return err
}

// A machine was copied with its certificate.
func TestTwoDaemonsThatWorkAsOneHostAreAskedForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		for range 2 {
			for _, session := range []string{"one", "two"} {
				_ = s.polls(t, session)
				pass(time.Second)
			}
		}
		for _, session := range []string{"one", "two"} {
			if err := s.polls(t, session); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "copied") {
				t.Errorf("session %s: %v", session, err)
			}
		}
		if !slices.Equal(s.DuplicateSessions(), []string{hostA}) || s.Present(hostA) {
			t.Errorf("twins %v, there %t", s.DuplicateSessions(), s.Present(hostA))
		}
		if _, _, err := s.Do(t.Context(), change("k")); api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), "two daemons") {
			t.Errorf("a call: %v", err)
		}
		if e := s.tasks.events; len(e) != 1 || e[0].What != "host.two" || e[0].Object != "host/"+hostA {
			t.Errorf("events = %+v", e)
		}
		// One of them is turned off.
		for range 70 {
			_ = s.polls(t, "two")
			pass(time.Second)
		}
		if err := s.polls(t, "two"); err != nil || len(s.DuplicateSessions()) != 0 || !s.Present(hostA) {
			t.Errorf("it is alone: %v, twins %v, there %t", err, s.DuplicateSessions(), s.Present(hostA))
		}
	})
}

// Each session gets the tasks in turn, and a poll of a dead one may arrive late.
func TestADaemonThatIsRestartedIsOneHost(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		for i := range 30 {
			for _, session := range []string{fmt.Sprint(i), fmt.Sprint(i)} {
				if err := s.polls(t, session); err != nil {
					t.Fatalf("restart %d: %v", i, err)
				}
				s.Lost(hostA)
			}
		}
		for _, session := range []string{"28", "30", "30"} { // the first is late
			if err := s.polls(t, session); err != nil {
				t.Errorf("late: %v", err)
			}
		}
		if len(s.DuplicateSessions()) != 0 || !s.Present(hostA) || len(s.tasks.events) != 0 {
			t.Errorf("twins %v, there %t, events %+v", s.DuplicateSessions(), s.Present(hostA), s.tasks.events)
		}
	})
}
