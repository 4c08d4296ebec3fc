// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Dump returns every row of every table, for comparison.
func Dump(ctx context.Context, t *testing.T, s interface{ Reader() *sql.DB }) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	tables := expect.Value(ledger.ReadAll(ctx, s.Reader(), ledger.ScanString, "SELECT name FROM sqlite_schema WHERE type = 'table'"))(t)
	for _, table := range tables {
		columns := expect.Value(ledger.ReadAll(ctx, s.Reader(), ledger.ScanString, "SELECT name FROM pragma_table_info(?)", table))(t)
		scan := func(row ledger.Scanner) (string, error) {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := row.Scan(values...); err != nil {
				return "", err
			}
			b, err := json.Marshal(values)
			return string(b), err
		}
		out[table] = expect.Value(ledger.ReadAll(ctx, s.Reader(), scan, "SELECT * FROM "+table+" ORDER BY 1, 2"))(t)
	}
	return out
}

// Unchanged runs do, requires that it does not change the database, and returns its error.
func Unchanged(t *testing.T, s interface{ Reader() *sql.DB }, do func() error) error {
	t.Helper()
	before := Dump(t.Context(), t, s)
	err := do()
	if diff := cmp.Diff(before, Dump(t.Context(), t, s)); diff != "" {
		t.Errorf("the database changed (-before +after):\n%s", diff)
	}
	return err
}

// WantStale requires that err is stale_epoch with the registry's epoch.
func WantStale(t *testing.T, err error, epoch int64) {
	t.Helper()
	expect.Code(t, err, api.CodeStaleEpoch)
	if got := api.AsError(err).Details["epoch"]; got != epoch {
		t.Errorf("details = %v, want epoch %d", api.AsError(err).Details, epoch)
	}
}
