// SPDX-License-Identifier: Apache-2.0

package sqlitedb_test

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/sqlitedb"
)

func TestTheLogIsFoldedWhileAChangeIsBeingMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, schema)
	defer closeDB(t, db)
	f, err := db.NewFolder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := db.Write.ExecContext(t.Context(), "INSERT INTO a (id, t) VALUES (71, 'x')"); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, f, true)
	tx, err := db.Write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO a (id, t) VALUES (72, 'x')"); err != nil {
		t.Fatal(err)
	}
	if left, err := f.Fold(t.Context()); err != nil || left != 0 {
		t.Errorf("fold beside a change: %d pages left (%v), want none", left, err)
	}
	wantLeft(t, f, false)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, f, true)
	if err := f.FoldRest(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, f, false)
	var n int
	if err := db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM a WHERE id > 70").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows (%v), want 2", n, err)
	}
}

func wantLeft(t *testing.T, f *sqlitedb.Folder, want bool) {
	t.Helper()
	if left, err := f.Left(t.Context()); err != nil || left > 0 != want {
		t.Errorf("%d pages of the log are not in the file (%v), want some: %t", left, err, want)
	}
}
