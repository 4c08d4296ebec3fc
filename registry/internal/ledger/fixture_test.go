// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/schema"
)

func TestMain(m *testing.M) {
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

// newLedger returns a ledger on the registry's schema, with a table to change.
func newLedger(t *testing.T, o Options) *Ledger {
	t.Helper()
	return openLedger(t, filepath.Join(t.TempDir(), "ledger.db"), o)
}

func openLedger(t *testing.T, path string, o Options) *Ledger {
	t.Helper()
	versions := append(schema.Versions(), "CREATE TABLE things (name TEXT PRIMARY KEY) STRICT")
	db := must(sqlitedb.Open(t.Context(), path, versions))(t)
	l := must(Start(t.Context(), db, o))(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// insertThing returns a change that inserts a row.
func insertThing(name string) func(context.Context, *Tx) error {
	return func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO things (name) VALUES (?)", name)
		return err
	}
}

func things(t *testing.T, l *Ledger) []string {
	t.Helper()
	return must(ReadAll(t.Context(), l.db.Read, ScanString, "SELECT name FROM things ORDER BY rowid"))(t)
}

// audited makes a change that inserts a thing and adds an event.
func audited(ctx context.Context, l *Ledger, req Request) (string, error) {
	return Mutate(ctx, l, req, admitAll, func(ctx context.Context, tx *Change) (string, error) {
		if err := insertThing(fmt.Sprint(req.Body))(ctx, tx.Tx); err != nil {
			return "", err
		}
		return fmt.Sprint("made ", req.Body), tx.Audit(ctx, api.Event{What: req.What})
	})
}

func admitAll(context.Context, *Change) error { return nil }

// must returns the result of a call that must succeed.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t *testing.T, err error, code api.Code, text string) {
	t.Helper()
	if api.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("error = %s %v, want %s with %q", api.CodeOf(err), err, code, text)
	}
}

// execute returns a change that runs a statement.
func execute(query string) func(context.Context, *Tx) error {
	return func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
}
