// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/registry/internal/ledger"
)

// Every change waits for the one writer, so its work must not grow with the site.
func TestChangesOfWorkflowsDoNotScanTables(t *testing.T) {
	s := newSite(t)
	scan := func(row ledger.Scanner) (string, error) {
		var (
			ignored any
			detail  string
		)
		err := row.Scan(&ignored, &ignored, &ignored, &detail)
		return detail, err
	}
	for name, tc := range map[string]struct{ query, index string }{
		"task":              {taskQuery + " WHERE t.id = ?", "sqlite_autoindex_tasks_1 (id=?)"},
		"volumes of a pool": {inPoolQuery, "location_pool (pool=?)"},
	} {
		plan := strings.Join(must(ledger.ReadAll(t.Context(), s.Reader(), scan, "EXPLAIN QUERY PLAN "+tc.query, nil))(t), "\n")
		if strings.Contains(plan, "SCAN ") || !strings.Contains(plan, "USING INDEX "+tc.index) {
			t.Errorf("%s: want %s in\n%s", name, tc.index, plan)
		}
	}
}
