// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

const checked = "compared with every host"

// acceptedBlind accepts a restore without a proof.
var acceptedBlind = RestoreAcceptance{Evidence: checked, WithoutProof: true}

// givenMark returns the mark in the answer to a report.
func givenMark(t *testing.T, s *Store) api.RegistryMark {
	t.Helper()
	return *must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t).Mark
}

// show reports for host a with a mark.
func show(t *testing.T, s *Store, m api.RegistryMark) error {
	t.Helper()
	in := reportOf(hostA, "a", 1)
	in.Mark = &m
	return second(s.Reports.Receive(t.Context(), nobody, in))
}

func wantReadOnly(t *testing.T, s *Store, want bool) {
	t.Helper()
	reason, got := s.ReadOnly()
	if got != want || got && !strings.Contains(reason, "accept-restore") {
		t.Fatalf("read-only = %v (%s), want %v and what to do", got, reason, want)
	}
	err := post(t.Context(), s, nobody)
	if want {
		wantCode(t, err, api.CodeRegistryUnavailable, "restored from a backup")
	} else if err != nil {
		t.Errorf("a change: %v", err)
	}
}

func TestTheMarkIsTheEndOfTheTrail(t *testing.T) {
	s, reopen := reopenable(t)
	m := givenMark(t, s)
	if _, err := uuid.Parse(m.RegistryID); err != nil || m.Timeline != 1 || m.Seq != 1 || len(m.Hash) != 64 {
		t.Errorf("mark = %+v", m)
	}
	if err := post(t.Context(), s, nobody); err != nil {
		t.Fatal(err)
	}
	next := givenMark(t, s)
	if next.Seq != 2 || next.Hash == m.Hash || next.RegistryID != m.RegistryID {
		t.Errorf("mark = %+v after %+v", next, m)
	}
	s = reopen()
	if diff := cmp.Diff(next, s.Marks.Now()); diff != "" {
		t.Errorf("mark after a restart (-before +after):\n%s", diff)
	}
	if other := newStore(t).Marks.Now(); other.RegistryID == m.RegistryID {
		t.Error("two registries have one id")
	}
}

func TestMarksThatProveARestore(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*api.RegistryMark)
		want bool
	}{
		"the newest":                  {func(*api.RegistryMark) {}, false},
		"an event that is not there":  {func(m *api.RegistryMark) { m.Seq++ }, true},
		"another event at the end":    {func(m *api.RegistryMark) { m.Hash = strings.Repeat("0", 64) }, true},
		"another event in the middle": {func(m *api.RegistryMark) { m.Seq-- }, true},
		"a newer timeline":            {func(m *api.RegistryMark) { m.Timeline++; m.Seq = 1 }, true},
		"an older timeline":           {func(m *api.RegistryMark) { m.Timeline--; m.Seq += 100 }, false},
		"another registry":            {func(m *api.RegistryMark) { m.RegistryID = uuid.NewString(); m.Seq += 100 }, false},
		"nothing":                     {func(m *api.RegistryMark) { *m = api.RegistryMark{} }, false},
		"a negative event":            {func(m *api.RegistryMark) { m.Seq = -1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			m := s.Marks.Now()
			tc.edit(&m)
			m = s.history.Signed(m)
			if err := show(t, s, m); (err != nil) != tc.want {
				t.Errorf("report: %v", err)
			}
			wantReadOnly(t, s, tc.want)
		})
	}
}

func TestAnOlderMarkOfThisHistoryIsFine(t *testing.T) {
	s, reopen := reopenable(t)
	m := givenMark(t, s)
	for range 3 {
		if err := post(t.Context(), s, nobody); err != nil {
			t.Fatal(err)
		}
	}
	s = reopen() // or the store remembers that it has given it
	if err := show(t, s, m); err != nil {
		t.Error(err)
	}
	wantReadOnly(t, s, false)
}

// restored returns a store from a backup, and a mark that a host got after the backup.
func restored(t *testing.T) (*Store, api.RegistryMark) {
	t.Helper()
	dir := t.TempDir()
	s := openStore(t, filepath.Join(dir, "registry.db"))
	givenMark(t, s)
	if err := sqlitedb.Backup(t.Context(), filepath.Join(dir, "registry.db"), filepath.Join(dir, "backup.db")); err != nil {
		t.Fatal(err)
	}
	if err := post(t.Context(), s, nobody); err != nil {
		t.Fatal(err)
	}
	return openStore(t, filepath.Join(dir, "backup.db")), givenMark(t, s)
}

func TestARegistryFromABackupTakesNoChangesUntilThatIsAccepted(t *testing.T) {
	s, m := restored(t)
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "host a knows of event 2 of timeline 1")
	wantReadOnly(t, s, true)
	if err := unchanged(t, s, func() error {
		// This also holds for a report without changes, and for housekeeping.
		wantCode(t, second(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1))), api.CodeRegistryUnavailable, "event 2")
		return s.Housekeep(t.Context())
	}); err != nil {
		t.Error(err)
	}
	if h := must(s.Hosts.All(t.Context()))(t); len(h) != 1 {
		t.Errorf("hosts = %+v; a read-only store can be read", h)
	}

	accepted := must(s.Marks.AcceptRestore(t.Context(), Call{Who: "root", Key: "key-1"}, RestoreAcceptance{Evidence: checked}))(t)
	if accepted.Timeline != 2 || accepted != s.Marks.Now() {
		t.Errorf("mark = %+v, and the store says %+v", accepted, s.Marks.Now())
	}
	if e := lastEvent(t, s); e.What != "registry.accept_restore" || e.Who != "root" || e.From != "1" || e.To != "2" || e.Details["evidence"] != checked ||
		!strings.Contains(fmt.Sprint(e.Details["reason"]), "event 2") {
		t.Errorf("event = %+v", e)
	}
	wantReadOnly(t, s, false)
	// The mark of the old timeline proves nothing; its epoch is also old.
	wantCode(t, show(t, s, m), api.CodeStaleEpoch, "host a")
	wantReadOnly(t, s, false)
	again := must(s.Marks.AcceptRestore(t.Context(), Call{Who: "root", Key: "key-1"}, RestoreAcceptance{Evidence: checked}))(t)
	if again != accepted {
		t.Errorf("the same again = %+v, want %+v", again, accepted)
	}
}

func TestAnEndOfTheTrailThatWasCutOffIsNoticedByAMark(t *testing.T) {
	s, reopen := reopenable(t)
	givenMark(t, s)
	if err := post(t.Context(), s, nobody); err != nil {
		t.Fatal(err)
	}
	m := givenMark(t, s)
	if _, err := s.sqlite.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_removed; DELETE FROM events WHERE seq = 2"); err != nil {
		t.Fatal(err)
	}
	s = reopen()
	must(s.Trail.Verify(t.Context()))(t) // the trail alone does not show it
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "event 2")
	wantReadOnly(t, s, true)
}

func TestTheNewTimelineIsNewerThanAnyThatAHostWasTold(t *testing.T) {
	s := newSite(t)
	m := s.Marks.Now()
	m.Timeline = 7
	m = s.history.Signed(m)
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "timeline 7")
	if accepted := must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t); accepted.Timeline != 8 {
		t.Errorf("timeline = %d, want 8", accepted.Timeline)
	}
	wantReadOnly(t, s, false)
}

func TestTheTimelineSurvivesARestart(t *testing.T) {
	s, reopen := reopenable(t)
	accepted := must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	s = reopen()
	if s.Marks.Now() != accepted {
		t.Errorf("mark = %+v, want %+v", s.Marks.Now(), accepted)
	}
}

func TestAcceptRestoreThatIsRefused(t *testing.T) {
	s, m := restored(t)
	wantCode(t, show(t, s, m), api.CodeRegistryUnavailable, "")
	wantCode(t, second(s.Marks.AcceptRestore(t.Context(), nobody, RestoreAcceptance{Evidence: " "})), api.CodeInvalidArgument, "evidence is missing")
	wantCode(t, second(s.Marks.AcceptRestore(t.Context(), as(hostA, 1), acceptedBlind)), api.CodePermissionDenied, "operator")
	wantReadOnly(t, s, true)
}

func TestEveryHostThatProvesARestoreIsNamedOnce(t *testing.T) {
	var reasons []string
	s := openWith(t, filepath.Join(t.TempDir(), "registry.db"), Options{OnReadOnly: func(reason string) { reasons = append(reasons, reason) }})
	m := givenMark(t, s)
	m.Seq = 10
	m = s.history.Signed(m)
	for range 2 {
		if err := s.Marks.Observe(t.Context(), hostA, "a", m); err != nil {
			t.Fatal(err)
		}
	}
	m.Seq = 20
	m = s.history.Signed(m)
	if err := s.Marks.Observe(t.Context(), hostB, "b", m); err != nil {
		t.Fatal(err)
	}
	if len(reasons) != 2 || !strings.Contains(reasons[0], "host a knows of event 10") || !strings.Contains(reasons[1], "host b and 1 more knows of event 20") {
		t.Errorf("reasons = %q", reasons)
	}
}

func TestTheLastLookAtTheTrailIsKept(t *testing.T) {
	s := newSite(t)
	if c, ok := s.Trail.LastCheck(); ok {
		t.Errorf("before any look: %+v", c)
	}
	must(s.Trail.Verify(t.Context()))(t)
	if c, ok := s.Trail.LastCheck(); !ok || c.Events != 4 || c.Err != nil || c.At.IsZero() {
		t.Errorf("look = %+v", c)
	}
	if _, err := s.sqlite.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_removed; DELETE FROM events WHERE seq = 4"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trail.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "ends with event 3 and had event 4") {
		t.Errorf("error = %v", err)
	}
	if c, _ := s.Trail.LastCheck(); c.Err == nil {
		t.Errorf("look = %+v", c)
	}
}

// A fence that the backup does not have must neither lock a host out for ever nor be forgotten.
func TestEveryHostGetsAnEpochAboveAllThatTheLostHistoryGaveOut(t *testing.T) {
	s := newSite(t)
	lost := int64(40)
	m := s.Marks.Now()
	m.Seq++
	m = s.history.Signed(m)
	shown := reportOf(hostA, "a", lost)
	shown.Mark = &m
	wantCode(t, second(s.Reports.Receive(t.Context(), nobody, shown)), api.CodeRegistryUnavailable, "restored from a backup")
	accepted := must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)

	shown.Mark = &accepted
	err := second(s.Reports.Receive(t.Context(), nobody, shown))
	wantCode(t, err, api.CodeStaleEpoch, "host a")
	epoch, _ := api.AsError(err).Details["epoch"].(int64)
	if epoch <= lost {
		t.Fatalf("epoch = %d after one of %d", epoch, lost)
	}
	for _, old := range []int64{1, lost} {
		wantCode(t, post(t.Context(), s, as(hostA, old)), api.CodeStaleEpoch, "host a")
	}
	if h := must(s.Hosts.Get(t.Context(), hostA))(t); h.Status == api.HostFenced || h.Epoch != epoch {
		t.Errorf("host = %+v, want epoch %d and no fence", h, epoch)
	}
	must(s.Hosts.Rejoin(t.Context(), as(hostA, epoch), hostA, api.HostRejoin{Epoch: epoch}))(t)
	must(s.Reports.Receive(t.Context(), as(hostA, epoch), reportOf(hostA, "a", epoch)))(t)
	if err := post(t.Context(), s, as(hostA, epoch)); err != nil {
		t.Error(err)
	}
	// The same again from there.
	must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
	if h := must(s.Hosts.Get(t.Context(), hostA))(t); h.Epoch <= epoch {
		t.Errorf("epoch = %d after %d", h.Epoch, epoch)
	}
}
