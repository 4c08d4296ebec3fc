// SPDX-License-Identifier: Apache-2.0

package sqlitedb_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/sqlitedb"
)

var schema = []string{
	`CREATE TABLE a (id INTEGER PRIMARY KEY, t TEXT NOT NULL) STRICT;
	 INSERT INTO a (t) VALUES ('from migration 1');`,
	`INSERT INTO a (t) VALUES ('from migration 2');`,
}

func open(t *testing.T, path string, schema []string) *sqlitedb.DB {
	t.Helper()
	db, err := sqlitedb.Open(t.Context(), path, schema)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func closeDB(t *testing.T, db *sqlitedb.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func countRows(t *testing.T, db *sqlitedb.DB) int {
	t.Helper()
	var n int
	if err := db.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM a").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// refused opens path and expects an error that contains want, and an unchanged file.
func refused(t *testing.T, path string, schema []string, want string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlitedb.Open(t.Context(), path, schema)
	if err == nil {
		closeDB(t, db)
		t.Fatalf("Open succeeded, want an error with %q", want)
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %q does not say %q and the path", err, want)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the refused file was changed")
	}
}

func TestEveryMigrationIsAppliedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name?#%.db")
	closeDB(t, open(t, path, schema[:1]))
	closeDB(t, open(t, path, schema))
	db := open(t, path, schema)
	defer closeDB(t, db)
	if n := countRows(t, db); n != 2 {
		t.Errorf("rows = %d, want one per migration", n)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the database is not where it was asked for: %v", err)
	}
}

func TestADatabaseOfAnOlderSchemaIsBackedUpBeforeItIsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	closeDB(t, open(t, path, schema[:1]))
	again := open(t, path, schema[:1])
	if again.MigratedFrom != "" {
		t.Errorf("a database that has the schema was backed up to %s", again.MigratedFrom)
	}
	closeDB(t, again)
	// A process died in the middle of a backup.
	if err := os.WriteFile(path+".schema-1.partial", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := open(t, path, schema)
	defer closeDB(t, db)
	if want := sqlitedb.VersionBackup(path, 1); db.MigratedFrom != want || want != path+".schema-1" {
		t.Errorf("backup = %q, want %q", db.MigratedFrom, want)
	}
	if _, err := os.Stat(path + ".schema-1.partial"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead process left of a backup is still there (%v)", err)
	}
	before := open(t, db.MigratedFrom, schema[:1])
	defer closeDB(t, before)
	if n := countRows(t, before); n != 1 {
		t.Errorf("rows in the backup = %d, want 1 of the schema before", n)
	}
}

func TestABackupOfAnOlderVisitToASchemaIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(sqlitedb.VersionBackup(path, 1), []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	closeDB(t, open(t, path, schema[:1]))
	closeDB(t, open(t, path, schema))
	closeDB(t, open(t, sqlitedb.VersionBackup(path, 1), schema[:1]))
}

func TestADatabaseThatCannotBeBackedUpIsNotMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	closeDB(t, open(t, path, schema[:1]))
	// A rename cannot replace a directory that is not empty.
	if err := os.MkdirAll(filepath.Join(sqlitedb.VersionBackup(path, 1), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, path, schema, "only after a backup")
	db := open(t, path, schema[:1])
	defer closeDB(t, db)
	if n := countRows(t, db); n != 1 {
		t.Errorf("rows = %d, want 1: it was migrated", n)
	}
	if left, err := filepath.Glob(path + "*.partial"); err != nil || len(left) > 0 {
		t.Errorf("an unfinished backup was left: %v (%v)", left, err)
	}
}

func TestFailedMigrationLeavesTheVersionBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	broken := []string{schema[0], `INSERT INTO a (t) VALUES ('half'); INSERT INTO missing VALUES (1);`}
	if _, err := sqlitedb.Open(t.Context(), path, broken); err == nil || !strings.Contains(err.Error(), "schema version 2") {
		t.Fatalf("error = %v, want one that names schema version 2", err)
	}
	db := open(t, path, schema[:1])
	defer closeDB(t, db)
	if n := countRows(t, db); n != 1 {
		t.Errorf("rows = %d, want 1: half of migration 2 stayed", n)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	closeDB(t, open(t, path, schema))
	refused(t, path, schema[:1], "newer Volferry")
}

func TestFileThatIsNoDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, path, schema, "damaged or is no database")
}

func TestDamagedDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, schema)
	if _, err := db.Write.ExecContext(t.Context(),
		`INSERT INTO a (t) SELECT hex(randomblob(500)) FROM json_each('[`+strings.Repeat("1,", 199)+`1]')`); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[len(b)/2 : len(b)/2+8192])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, schema, "damaged")
}

func TestSecondOpenIsRefusedUntilTheFirstCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, schema)
	if _, err := sqlitedb.Open(t.Context(), path, schema); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("error = %v, want one about another process", err)
	}
	closeDB(t, db)
	closeDB(t, open(t, path, schema))
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.db")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	db := open(t, path, schema)
	defer closeDB(t, db)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files = %v (%v), want the database, its log and its lock", files, err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != 0o600 {
			t.Errorf("mode of %s = %o, want 600", filepath.Base(f), st.Mode().Perm())
		}
	}
}

func TestConnectionsAreDurableAndReadersCannotWrite(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), schema)
	defer closeDB(t, db)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "temp_store": "2", "wal_autocheckpoint": "4096", "foreign_keys": "1", "busy_timeout": "5000"} {
		var got string
		if err := db.Write.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s = %s, want %s", pragma, got, want)
		}
	}
	if _, err := db.Read.ExecContext(t.Context(), "DELETE FROM a"); err == nil {
		t.Error("a read connection deleted rows")
	}
}

func TestMissingDirectoryIsAnError(t *testing.T) {
	if _, err := sqlitedb.Open(t.Context(), filepath.Join(t.TempDir(), "no", "a.db"), schema); err == nil {
		t.Error("Open made a database in a directory that does not exist")
	}
}

func TestBackupOfAnOpenDatabaseHasTheLastCommit(t *testing.T) {
	dir := t.TempDir()
	path, dst := filepath.Join(dir, "a.db"), filepath.Join(dir, "it's a backup")
	db := open(t, path, schema)
	defer closeDB(t, db)
	if _, err := db.Write.ExecContext(t.Context(), "INSERT INTO a (t) VALUES ('last')"); err != nil {
		t.Fatal(err)
	}
	if err := sqlitedb.Backup(t.Context(), path, dst); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dst); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("backup: %v (%v), want mode 600", st.Mode(), err)
	}
	if err := sqlitedb.Backup(t.Context(), path, dst); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second backup to the same file: error = %v, want that it exists", err)
	}
	restored := open(t, dst, schema)
	defer closeDB(t, restored)
	if n := countRows(t, restored); n != 3 {
		t.Errorf("rows in the backup = %d, want 3", n)
	}
}

func TestFailedBackupLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	path, dst := filepath.Join(dir, "a.db"), filepath.Join(dir, "backup")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{path, path + "x"} {
		if err := sqlitedb.Backup(t.Context(), from, dst); err == nil {
			t.Errorf("backup of %s succeeded", from)
		}
		if _, err := os.Stat(dst); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a failed backup left a file: %v", err)
		}
	}
}

func TestViolatesTellsWhichIndexRefused(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"), []string{
		`CREATE TABLE b (id TEXT PRIMARY KEY, x TEXT NOT NULL, y TEXT NOT NULL, UNIQUE (x, y)) STRICT;
		 INSERT INTO b VALUES ('1', 'x', 'y');`,
	})
	defer closeDB(t, db)
	// In this order: the last row is inserted.
	for _, c := range []struct {
		insert string
		id, xy bool
	}{
		{"VALUES ('1', 'x', 'z')", true, false},
		{"VALUES ('2', 'x', 'y')", false, true},
		{"VALUES (NULL, 1, NULL)", false, false},
		{"VALUES ('2', 'x', 'z')", false, false},
	} {
		_, err := db.Write.ExecContext(t.Context(), "INSERT INTO b "+c.insert)
		id, xy := sqlitedb.Violates(err, "b.id"), sqlitedb.Violates(err, "b.x", "b.y")
		if id != c.id || xy != c.xy || sqlitedb.Violates(err, "b.x") {
			t.Errorf("INSERT %s: violates id %v, x+y %v; want %v, %v (%v)", c.insert, id, xy, c.id, c.xy, err)
		}
	}
}
