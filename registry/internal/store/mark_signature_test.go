// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/history"
)

// forged returns a mark that a host invented, or got before marks were signed.
func forged(s *Store) api.RegistryMark {
	m := s.Marks.Now()
	m.Seq, m.Hash, m.Signature = m.Seq+1000, strings.Repeat("0", 64), ""
	return m
}

func TestAMarkThatAHostMadeUpCountsAgainstThatHostAlone(t *testing.T) {
	for name, edit := range map[string]func(*Store, *api.RegistryMark){
		"without a signature":       func(*Store, *api.RegistryMark) {},
		"with that of another mark": func(s *Store, m *api.RegistryMark) { m.Signature = s.Marks.Now().Signature },
		"with that of another key": func(_ *Store, m *api.RegistryMark) {
			*m = history.New(api.RegistryMark{}, []byte("guess"), nil).Signed(*m)
		},
		"of a timeline to come":       func(_ *Store, m *api.RegistryMark) { m.Timeline += 5 },
		"of an event that is another": func(s *Store, m *api.RegistryMark) { m.Seq = s.Marks.Now().Seq },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			m := forged(s)
			edit(s, &m)
			wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "not signed by this registry")
			if reason, yes := s.ReadOnly(); yes {
				t.Fatalf("read-only: %s", reason)
			}
			wantCode(t, post(t.Context(), s, as(hostA, 1)), api.CodeRegistryUnavailable, "not signed by this registry")
			if err := post(t.Context(), s, as(hostB, 1)); err != nil {
				t.Errorf("a change of the other host: %v", err)
			}
			if err := post(t.Context(), s, nobody); err != nil {
				t.Errorf("a change of an operator: %v", err)
			}
			if diff := cmp.Diff([]string{"a"}, s.Marks.Doubted()); diff != "" {
				t.Errorf("doubted (-want +got):\n%s", diff)
			}
			if err := show(t, s, s.Marks.Now()); err != nil {
				t.Errorf("a mark that was given out ends it: %v", err)
			}
			if err := post(t.Context(), s, as(hostA, 1)); err != nil || len(s.Marks.Doubted()) > 0 {
				t.Errorf("afterwards: %v, doubted %v", err, s.Marks.Doubted())
			}
		})
	}
}

func TestAMarkOfBeforeMarksWereSignedIsFineIfItIsOfThisHistory(t *testing.T) {
	s := newSite(t)
	m := s.Marks.Now()
	m.Signature = ""
	if err := show(t, s, m); err != nil {
		t.Error(err)
	}
	wantReadOnly(t, s, false)
}

func TestAHostIsFencedWhileTheRegistryIsReadOnly(t *testing.T) {
	s, m := restored(t)
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "restored from a backup")
	if h := must(s.Hosts.Fence(t.Context(), nobody, "a", api.HostFence{Evidence: checked, EvenIfUp: true}))(t); h.Status != api.HostFenced {
		t.Errorf("host = %+v", h)
	}
	wantReadOnly(t, s, true)
	wantCode(t, second(s.Hosts.Fence(t.Context(), as(hostA, 1), "a", cut)), api.CodeRegistryUnavailable, "")
}

func TestTheProofOfARestoreOutlivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := must(Open(t.Context(), path, Options{}))(t)
	givenMark(t, s)
	m := s.Marks.Now()
	m.Seq, m.Timeline = m.Seq+1, 4
	wantCode(t, show(t, s, s.history.Signed(m)), api.CodeRegistryUnavailable, "timeline 4")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	wantReadOnly(t, s, true)
	if got := must(s.Marks.AcceptRestore(t.Context(), nobody, RestoreAcceptance{Evidence: checked}))(t); got.Timeline != 5 {
		t.Errorf("timeline = %d, want one above what the host showed", got.Timeline)
	}
	wantReadOnly(t, s, false)
}

func TestARestoreThatNobodyHasShownIsNotAccepted(t *testing.T) {
	s := newSite(t)
	sound := RestoreAcceptance{Evidence: checked}
	wantCode(t, unchanged(t, s, func() error { return second(s.Marks.AcceptRestore(t.Context(), nobody, sound)) }), api.CodeConflict, "--without-proof")
	must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	wantCode(t, second(s.Marks.AcceptRestore(t.Context(), nobody, sound)), api.CodeConflict, "no restore to accept")
	if h := must(s.Hosts.Get(t.Context(), "a"))(t); !h.Behind {
		t.Errorf("host = %+v, want it behind", h)
	}
	comeBack(t, s, hostA)
	if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.Behind {
		t.Errorf("host = %+v, want it back", h)
	}
}
