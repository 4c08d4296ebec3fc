// SPDX-License-Identifier: Apache-2.0

package sqlitedb_test

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/sqlitedb"
)

func TestACheckpointIsMadeWhileAChangeIsBeingMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, schema)
	defer closeDB(t, db)
	c, err := db.NewCheckpointer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := db.Write.ExecContext(t.Context(), "INSERT INTO a (id, t) VALUES (71, 'x')"); err != nil {
		t.Fatal(err)
	}
	wantPending(t, c, true)
	tx, err := db.Write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO a (id, t) VALUES (72, 'x')"); err != nil {
		t.Fatal(err)
	}
	if pending, err := c.Checkpoint(t.Context()); err != nil || pending != 0 {
		t.Errorf("checkpoint beside a change: %d pages left (%v), want none", pending, err)
	}
	wantPending(t, c, false)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wantPending(t, c, true)
	if err := c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPending(t, c, false)
	var n int
	if err := db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM a WHERE id > 70").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows (%v), want 2", n, err)
	}
}

func wantPending(t *testing.T, c *sqlitedb.Checkpointer, want bool) {
	t.Helper()
	if pending, err := c.Pending(t.Context()); err != nil || pending > 0 != want {
		t.Errorf("%d pages of the log are not in the file (%v), want some: %t", pending, err, want)
	}
}
