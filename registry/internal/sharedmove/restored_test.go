// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// restoredFrom replaces the registry by a backup, accepts the restore, and makes all hosts rejoin.
func (s *site) restoredFrom(backup string) {
	s.T.Helper()
	for _, d := range s.hosts {
		d.Away()
	}
	s.Replace(func() {
		for _, end := range []string{"-wal", "-shm"} {
			if err := os.Remove(s.Path + end); err != nil && !os.IsNotExist(err) {
				s.T.Fatal(err)
			}
		}
		expect.OK(s.T, os.Rename(backup, s.Path))
	}, func() {})
	expect.Value(s.Store.Marks.AcceptRestore(s.T.Context(), store.Call{}, store.RestoreAcceptance{Evidence: "compared with the hosts", WithoutProof: true}))(s.T)
	for name := range s.hosts {
		s.rejoin(name)
	}
	s.begin()
	relaytest.Pass(time.Second)
}

// adopt ends a move that the registry does not know, by a call that adopts it.
func (s *site) adopt(id string, take func(ctx context.Context, call store.Call, id string, saved map[string][]api.SavedInstance, present []string) (workflow.Pause, error)) error {
	saved, present := map[string][]api.SavedInstance{}, []string{}
	for _, d := range s.hosts {
		saved[d.ID] = d.saved(id)
		present = append(present, d.ID)
	}
	_, err := take(s.T.Context(), store.Call{}, id, saved, present)
	return err
}

// giveUpWhatIsBarred discards the memory of barred guests, and reports whether there were any.
func (s *site) giveUpWhatIsBarred(id string) bool {
	s.T.Helper()
	for range 60 {
		switch m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T); {
		case m.State.Final():
			return false
		case m.State == api.MigrationNeedsOperator:
			s.follow(id)
			return true
		}
		relaytest.Pass(time.Second)
	}
	s.T.Fatalf("the migration is neither over nor stopped: %s", s.state(id))
	return false
}

// wantAllAt requires that all guests run at a location, except those that lost their memory.
func (s *site) wantAllAt(when time.Duration, at string, givenUp bool) {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		for name, g := range d.guests {
			if g.memory || g.at != at || !g.running && (g.process || !givenUp) {
				s.T.Errorf("restored after %s: guest %s is %+v, want it running on %s", when, name, *g, at)
			}
		}
	}
}

// A backup from before a move is restored at every moment of the move. Until a guest was to be
// restored at dst, all are restored at src. Afterwards, guests at dst have continued there: a
// cancel changes nothing, and the command in its error restores the others there too.
func TestAMoveThatARestoredRegistryDoesNotKnowEndsAtSrcOrWhereItsGuestsRun(t *testing.T) {
	ends := map[api.Code]int{}
	for when := 500 * time.Millisecond; when < 25*time.Second; when += 1700 * time.Millisecond {
		bubble(t, func(s *site) {
			backup := filepath.Join(s.T.TempDir(), "backup.db")
			expect.OK(s.T, sqlitedb.Backup(s.T.Context(), s.Path, backup))
			id := s.move()
			relaytest.Pass(when)
			before := s.asked()
			s.restoredFrom(backup)
			err := s.adopt(id, s.Store.Pauses.Adopt)
			ends[api.CodeOf(err)]++
			switch api.CodeOf(err) { //nolint:exhaustive // others are wrong
			case "":
				givenUp := s.giveUpWhatIsBarred(id)
				if m := s.until(id); m.State != api.MigrationCancelled || m.Error == nil || m.Error.Code != api.CodeRegistryUnavailable {
					s.T.Errorf("restored after %s: migration = %+v", when, m)
				}
				s.wantAllAt(when, "/old/v", givenUp)
			case api.CodeNeedsOperator, api.CodeNotFound: // not found: no host has been called yet
				relaytest.Pass(time.Minute)
				if now := s.asked(); now != before {
					s.T.Errorf("restored after %s: %d calls were made for a move that was refused", when, now-before)
				}
				if api.CodeOf(err) == api.CodeNeedsOperator {
					s.endsWhereItsGuestsRun(when, id, err)
				}
			default:
				s.T.Errorf("restored after %s: %v", when, err)
			}
			for _, i := range expect.Value(s.Store.Instances.All(s.T.Context(), store.Viewer{}))(s.T) {
				if i.Locked {
					s.T.Errorf("restored after %s: instance %s is locked", when, i.Name)
				}
			}
		})
	}
	if ends[""] == 0 || ends[api.CodeNeedsOperator] == 0 {
		t.Errorf("ends = %v, want some of each", ends)
	}
}

// endsWhereItsGuestsRun executes the command in the refusal of a cancel.
func (s *site) endsWhereItsGuestsRun(when time.Duration, id string, refused error) {
	s.T.Helper()
	command, _ := api.AsError(refused).Details[api.DetailCure].(string)
	if !strings.Contains(refused.Error(), "`"+command+"`") {
		s.T.Errorf("restored after %s: %v does not say %q", when, refused, command)
	}
	s.types(command)
	givenUp := s.giveUpWhatIsBarred(id)
	m := s.until(id)
	v := expect.Value(s.Store.Volumes.Get(s.T.Context(), "v", store.Viewer{}))(s.T)
	if m.State != api.MigrationCompleted || m.Error != nil || v.Location.Path != "/new/"+m.Dst.Name || v.MigrationID != "" {
		s.T.Errorf("restored after %s: migration = %+v, volume = %+v", when, m, v)
	}
	s.wantAllAt(when, v.Location.Path, givenUp)
}

// asked returns the number of calls of the hosts.
func (s *site) asked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		n += len(d.asked)
	}
	return n
}

// An untrusted host reports guests for a move that never existed.
func TestWhatAHostSaysOfTheGuestsOfOthersMovesNoVolume(t *testing.T) {
	bubble(t, func(s *site) {
		const id = "40000000-0000-4000-8000-000000000001"
		volume := expect.Value(s.Store.Volumes.Get(s.T.Context(), "v", store.Viewer{}))(s.T).ID
		dst := storetest.At("/new/theirs")
		s.mu.Lock()
		s.hosts["b"].rest(id, guestID("g1"), volume, dst)
		s.hosts["b"].guests[guestID("g1")] = &guest{at: dst.Path} // as it reports
		s.mu.Unlock()
		for name, take := range map[string]func(context.Context, store.Call, string, map[string][]api.SavedInstance, []string) (workflow.Pause, error){
			"cancel": s.Store.Pauses.Adopt, "complete": s.Store.Pauses.AdoptMoved,
		} {
			if err := s.adopt(id, take); api.CodeOf(err) != api.CodeChainChanged {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
