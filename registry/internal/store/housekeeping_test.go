// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

func TestHousekeepingEmptiesTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := openStore(t, path)
	must(s.Reports.Receive(t.Context(), nobody, reportOfFast()))(t)
	size := func() int64 { return must(os.Stat(path + "-wal"))(t).Size() }
	if size() == 0 {
		t.Fatal("a change is not in the log")
	}
	// A reader keeps the log, and is not waited for.
	reader := must(s.sqlite.Read.BeginTx(t.Context(), nil))(t)
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM hosts").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if err := post(t.Context(), s, nobody); err != nil {
		t.Fatal(err)
	}
	if err := s.Housekeep(t.Context()); err != nil || size() == 0 {
		t.Errorf("with a reader: %v, log of %d bytes", err, size())
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Housekeep(t.Context()); err != nil || size() != 0 {
		t.Errorf("log of %d bytes (%v), want none", size(), err)
	}
}

func TestOldAnswersAreForgotten(t *testing.T) {
	s := newSite(t)
	must(s.Types.Create(t.Context(), Call{Key: "old"}, api.VolumeTypeCreate{Name: "gold"}))(t)
	s.now = func() time.Time { return time.Now().Add(ledger.KeepAnswers + time.Hour) }
	if err := s.Housekeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(dump(t.Context(), t, s)["idempotency"]); n != 0 {
		t.Errorf("answers kept = %d", n)
	}
}
