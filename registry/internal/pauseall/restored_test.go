// SPDX-License-Identifier: Apache-2.0

package pauseall_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/store"
)

// restoredFrom replaces the registry by a backup of before, accepts that, and has all
// hosts come back.
func (s *site) restoredFrom(backup string) {
	s.t.Helper()
	s.loop()
	for _, d := range s.hosts {
		d.away()
	}
	s.close()
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(s.path + end); err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
	}
	if err := os.Rename(backup, s.path); err != nil {
		s.t.Fatal(err)
	}
	s.open()
	must(s.store.AcceptRestore(s.t.Context(), store.Call{}, "compared with the hosts"))(s.t)
	for name := range s.hosts {
		s.rejoin(name)
	}
	s.begin()
	pass(time.Second)
}

// adopt cancels a move that the registry does not know.
func (s *site) adopt(id string) error {
	saved, present := map[string][]api.SavedInstance{}, []string{}
	for _, d := range s.hosts {
		saved[d.id] = d.saved(id)
		present = append(present, d.id)
	}
	_, err := s.store.AdoptPause(s.t.Context(), store.Call{}, id, saved, present)
	return err
}

// wantAllAt says that all guests run at a place.
func (s *site) wantAllAt(when time.Duration, at string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		for name, g := range d.guests {
			if g.saved || g.at != at {
				s.t.Errorf("restored after %s: guest %s is %+v, want it running on %s", when, name, *g, at)
			}
		}
	}
}

// A backup of the time before a move comes back at every moment of the move. Until a
// guest was to be woken at dst all are woken at src; from then on none is touched, as
// what runs at dst has gone on there.
func TestAMoveThatARestoredRegistryDoesNotKnowEndsAtSrcOrIsLeftAsItIs(t *testing.T) {
	ends := map[api.Code]int{}
	for when := 500 * time.Millisecond; when < 25*time.Second; when += 1700 * time.Millisecond {
		bubble(t, func(s *site) {
			backup := filepath.Join(s.t.TempDir(), "backup.db")
			if err := sqlitedb.Backup(s.t.Context(), s.path, backup); err != nil {
				s.t.Fatal(err)
			}
			id := s.move()
			pass(when)
			before := s.asked()
			s.restoredFrom(backup)
			err := s.adopt(id)
			ends[api.CodeOf(err)]++
			switch api.CodeOf(err) { //nolint:exhaustive // others are wrong
			case "":
				if m := s.until(id); m.State != api.MigrationCancelled || m.Error == nil || m.Error.Code != api.CodeRegistryUnavailable {
					s.t.Errorf("restored after %s: migration = %+v", when, m)
				}
				s.wantAllAt(when, "/old/v")
			case api.CodeNeedsOperator, api.CodeNotFound: // not found: nobody was asked for anything yet
				pass(time.Minute)
				if now := s.asked(); now != before {
					s.t.Errorf("restored after %s: %d calls were made for a move that was refused", when, now-before)
				}
			default:
				s.t.Errorf("restored after %s: %v", when, err)
			}
			for _, i := range must(s.store.Instances(s.t.Context(), store.Viewer{}))(s.t) {
				if i.Locked {
					s.t.Errorf("restored after %s: instance %s is locked", when, i.Name)
				}
			}
		})
	}
	if ends[""] == 0 || ends[api.CodeNeedsOperator] == 0 {
		t.Errorf("ends = %v, want some of each", ends)
	}
}

// asked counts the calls that the hosts were asked for.
func (s *site) asked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		n += len(d.asked)
	}
	return n
}
