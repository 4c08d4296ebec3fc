// SPDX-License-Identifier: Apache-2.0

package sqlitedb_test

import (
	"path/filepath"
	"testing"
)

func TestAProbeMakesACommitThatChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, schema)
	c, err := db.NewCheckpointer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPending(t, c, false)
	if err := db.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPending(t, c, true)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	// With another version the migrations would run again, or the file would be refused.
	db = open(t, path, schema)
	defer closeDB(t, db)
	if n := countRows(t, db); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestAProbeFailsWhereAChangeWouldAndLeavesNoTransaction(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), schema)
	defer closeDB(t, db)
	for _, only := range []string{"1", "0"} {
		if _, err := db.Write.ExecContext(t.Context(), "PRAGMA query_only = "+only); err != nil {
			t.Fatal(err)
		}
		if err := db.Probe(t.Context()); err != nil != (only == "1") {
			t.Errorf("query_only = %s: %v", only, err)
		}
	}
}
