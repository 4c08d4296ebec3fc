// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func progress(host, name, migration string, done int64) api.HostReport {
	in := reportOf(host, name, 1)
	in.Migrations = []api.Migration{{ID: migration, State: api.MigrationCopying, Phase: "copy", BytesDone: done}}
	return in
}

func TestProgressIsWhatTheHostOfTheMigrationLastSaid(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	news := s.Progress.Next()
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 100)))(t)
	<-news
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 200)))(t)
	must(s.Reports.Receive(t.Context(), nobody, progress(hostB, "b", move, 7)))(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t) // nil changes nothing
	if m, ok := s.Progress.Of(move); !ok || m.BytesDone != 200 || m.Phase != "copy" {
		t.Errorf("live = %+v, %v", m, ok)
	}
	if _, ok := s.Progress.Of(id(migrationKind, 9)); ok {
		t.Error("a migration that nobody knows is live")
	}
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", id(migrationKind, 9), 1)))(t)
	if _, ok := s.Progress.Of(move); ok {
		t.Error("a migration that its host has no more is live")
	}
	if _, ok := s.Progress.Of(id(migrationKind, 9)); ok {
		t.Error("a migration that the registry does not have is live")
	}
}

func TestProgressIsNoReasonToWrite(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1)))(t)
	if err := unchanged(t, s, func() error {
		return second(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 100)))
	}); err != nil {
		t.Error(err)
	}
}

func TestProgressOfWhatIsOverIsForgotten(t *testing.T) {
	s := newSite(t)
	migrating(t, s)
	must(s.Reports.Receive(t.Context(), nobody, progress(hostA, "a", move, 100)))(t)
	if err := s.Housekeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Progress.Of(move); !ok {
		t.Error("housekeeping forgot a migration that is open")
	}
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	if err := s.Housekeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Progress.Of(move); ok {
		t.Error("a migration that is over is live")
	}
}
