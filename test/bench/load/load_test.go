// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a client whose changes take their time, two to a cycle.
type slow struct {
	each time.Duration
	made int
	fail error
}

func (s *slow) Change() error {
	time.Sleep(s.each)
	s.made++
	return s.fail
}

func (s *slow) Idle() bool { return s.made%2 == 0 }

func TestAChangeThatHadToWaitForAnotherTookLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One that is due every second and takes two is later each time.
		r, err := Drive(t.Context(), []*slow{{each: 2 * time.Second}}, 1, NewWindow(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Quantile(1); got < 6*time.Second || r.Changes != 5 {
			t.Errorf("%d changes, the longest took %v; it was answered at second 12 at the latest and due at second 5", r.Changes, got)
		}
	})
}

func TestClientsEndTheirCycleAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := []*slow{{each: 700 * time.Millisecond}, {each: 900 * time.Millisecond}}
		r, err := Drive(t.Context(), clients, 0, NewWindow(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			if !c.Idle() {
				t.Errorf("client %d is in the middle of a cycle after %d changes", i, c.made)
			}
		}
		if all := clients[0].made + clients[1].made; r.Changes >= all || r.Changes == 0 {
			t.Errorf("%d of %d changes count; those of the warm-up and after the end do not", r.Changes, all)
		}
	})
}

func TestNoHostHasMoreClientsThanADaemonHasChangesOnItsWay(t *testing.T) {
	for clients, want := range map[int]int{1: 1, 4: 1, 5: 2, 1000: 250} {
		if got := Hosts(clients); got != want {
			t.Errorf("%d clients are of %d hosts, want %d", clients, got, want)
		}
	}
}

func TestTheFirstErrorEndsAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		begin := time.Now()
		_, err := Drive(context.Background(), []*slow{{each: time.Second}, {each: time.Second, fail: broken}}, 0, NewWindow(time.Hour))
		if !errors.Is(err, broken) || time.Since(begin) > time.Minute {
			t.Errorf("after %v: %v, want %v at once", time.Since(begin), err, broken)
		}
	})
}
