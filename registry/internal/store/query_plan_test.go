// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Changes must not do work that grows with the site, because they all wait for one writer.
func TestChangesDoNotScanTables(t *testing.T) {
	s := newSite(t)
	for name, tc := range map[string]struct{ query, index string }{
		"holder by path":          {holderQuery, "location_path (path=?)"},
		"holder by name":          {holderQuery, "location_name (scope=? AND pool=? AND name=?)"},
		"volume":                  {volumeQuery + " WHERE v.id = ?", "location_of_volume (volume_id=?)"},
		"lock of a volume":        {volumeQuery + " WHERE v.id = ?", "migration_lock (volume_id=?)"},
		"attachments of a volume": {attachmentQuery + " WHERE a.volume_id = ?", "attachment_volume (volume_id=?)"},
		"place of an attachment":  {attachmentQuery + " WHERE a.id = ?", "location_volume (volume_id=?)"},
		"reservation":             {"DELETE FROM locations WHERE migration_id = ?", "location_of_migration (migration_id=?)"},
	} {
		plan := explain(t.Context(), t, s, tc.query)
		if strings.Contains(plan, "SCAN ") || !strings.Contains(plan, "USING INDEX "+tc.index) {
			t.Errorf("%s: want %s in\n%s", name, tc.index, plan)
		}
	}
}

// Explain every statement that the writer prepares in the cycle of an attachment.
func TestHotChangesDoNotScanTables(t *testing.T) {
	s := newCluster(t)
	must(s.ledger.ResetStatements(t.Context()))(t)
	for n := range 2 {
		call := func(what string) Call {
			c := as(hostA, 1)
			c.Key = fmt.Sprint(what, n)
			return c
		}
		must(s.Attachments.Reserve(t.Context(), call("r"), reserve(nil)))(t)
		must(s.Attachments.Reserve(t.Context(), call("s"), reserve(atWeb)))(t)
		must(s.Attachments.Transition(t.Context(), call("c"), first, attachmentStep(api.AttachmentAttaching, api.AttachmentReserved)))(t)
		must(s.Attachments.Release(t.Context(), call("x"), first, release(true)))(t)
		must(s.Attachments.Release(t.Context(), call("y"), next, release(true)))(t)
	}
	queries := must(s.ledger.ResetStatements(t.Context()))(t)
	if len(queries) < 10 {
		t.Fatalf("%d statements", len(queries))
	}
	for _, query := range queries {
		if plan := explain(t.Context(), t, s, query); strings.Contains(plan, "SCAN ") {
			t.Errorf("%s\nscans:\n%s", query, plan)
		}
	}
}

// Reading a page must not do work that grows with the list before and after it.
func TestAPageIsReadFromWhereItBegins(t *testing.T) {
	s := newSite(t)
	for _, viewer := range []Viewer{everyone, {hostA}} {
		for name, tc := range map[string]struct{ query, search string }{
			"volumes":                     {viewer.volumesQuery(), "SEARCH v USING PRIMARY KEY (id>?)"},
			"attachments of volumes":      {viewer.attachmentsOfVolumesQuery(), "USING INDEX attachment_volume (volume_id"},
			"instances":                   {viewer.instancesQuery(), "SEARCH i USING "},
			"slots":                       {viewer.slotsQuery(), "PRIMARY KEY (instance_id"},
			"pairs":                       {viewer.attachedPairsQuery(AttachmentFilter{}), "SEARCH a USING"},
			"attachments":                 {viewer.attachmentsQuery(AttachmentFilter{}), "SEARCH a USING"},
			"attachments of a volume":     {viewer.attachmentsQuery(AttachmentFilter{Volume: "v"}), "USING INDEX attachment_volume (volume_id=?)"},
			"attachments of an instance":  {viewer.attachmentsQuery(AttachmentFilter{Instance: "i"}), "USING INDEX attachment_device (instance_id=?"},
			"migrations":                  {viewer.migrationsQuery("", true), "SEARCH m USING PRIMARY KEY (id>?)"},
			"migrations of a volume":      {viewer.migrationsQuery("v", true), "INDEX migration_volume (volume_id=?"},
			"open migrations":             {viewer.migrationsQuery("", false), "SCAN m USING INDEX migration_open"},
			"open migrations of a volume": {viewer.migrationsQuery("v", false), "SEARCH m USING INDEX migration_lock (volume_id=?"},
		} {
			if plan := explain(t.Context(), t, s, tc.query); !strings.Contains(plan, tc.search) {
				t.Errorf("%s for %q: want %s in\n%s", name, viewer.HostID, tc.search, plan)
			}
		}
	}
}

func explain(ctx context.Context, t *testing.T, s *Store, query string) string {
	t.Helper()
	scan := func(row ledger.Scanner) (string, error) {
		var (
			ignored any
			detail  string
		)
		err := row.Scan(&ignored, &ignored, &ignored, &detail)
		return detail, err
	}
	args := make([]any, 12)
	return strings.Join(must(ledger.QueryAll(ctx, s.sqlite.Write, scan, "EXPLAIN QUERY PLAN "+query, args...))(t), "\n")
}
