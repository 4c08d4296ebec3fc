// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/monitoring/monitoringtest"
	"github.com/volferry/volferry/registry/internal/schema"
)

// everything returns a site with a series of every metric.
func everything(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.ok(t, "POST", "/v1/volumes:register", volume)
	if _, err := s.store.Trail.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.metrics.WatchDatabase(func() bool { return true })
	s.metrics.WatchCertificates(func() []mtls.Lifetime { return []mtls.Lifetime{{Name: "server", Until: time.Unix(1800000000, 0)}} })
	return s
}

func TestAScrapeIsWhatPromtoolExpects(t *testing.T) {
	monitoringtest.CheckScrape(t, everything(t).metrics.Registry)
}

func TestAlertsAndDashboardNameMetricsThatThereAre(t *testing.T) {
	monitoringtest.CheckUses(t, everything(t).metrics.Registry, func(name string) bool {
		return name != "volferry_registry_up" && strings.HasPrefix(name, "volferry_registry_")
	})
}

// The reference is the contract: names, labels and types.
func TestTheReferenceListsExactlyWhatThereIs(t *testing.T) {
	monitoringtest.CheckReference(t, "volferry-registry", everything(t).metrics.Registry)
}

func TestMetricsSayThatTheRegistryIsReadOnly(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "registry.db"), filepath.Join(dir, "backup.db")
	s := expect.Value(openSite(path))(t)
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", report)
	expect.OK(t, sqlitedb.Backup(t.Context(), path, backup))
	s.ok(t, "POST", "/v1/volumes:register", volume)
	mark := s.store.Marks.Now()
	expect.OK(t, s.close())

	restored := newSiteAt(t, backup)
	expect.OK(t, restored.store.Marks.Observe(t.Context(), hostID, "a", mark))
	wantValue(t, restored, "volferry_registry_read_only", 1)
}

func TestMetricsSayWhetherTheAuditTrailIsIntact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	s := expect.Value(openSite(path))(t)
	s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", report)
	s.ok(t, "POST", "/v1/volumes:register", volume)
	if _, err := s.store.Trail.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "volferry_registry_audit_trail_intact", 1)
	expect.OK(t, s.close())

	db, err := sqlitedb.Open(t.Context(), path, schema.Versions())
	expect.OK(t, err)
	_, err = db.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_changed; UPDATE events SET content = '{}' WHERE seq = 1")
	expect.OK(t, err)
	expect.OK(t, db.Close())
	s = newSiteAt(t, path)
	if _, err := s.store.Trail.Verify(t.Context()); err == nil {
		t.Fatal("the trail is taken for intact")
	}
	wantValue(t, s, "volferry_registry_audit_trail_intact", 0)
}

// wantValue requires one series of a gauge without labels.
func wantValue(t *testing.T, s *site, name string, want float64) {
	t.Helper()
	families := expect.Value(s.metrics.Registry.Gather())(t)
	var got []float64
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				got = append(got, m.GetGauge().GetValue())
			}
		}
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}
