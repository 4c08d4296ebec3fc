// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/thin"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/monitoring/monitoringtest"
)

// sources returns the Sources of a daemon with migrations of every sort.
func sources() Sources {
	return Sources{
		LibvirtUp:  func() bool { return true },
		RegistryUp: func() bool { return false }, JournalUp: func() bool { return true },
		Fenced: func() bool { return true }, TasksRunning: func() int { return 3 },
		Parked:          func() int { return 2 },
		OnReleased:      func() int { return 1 },
		CertificateEnds: func() map[string]time.Time { return map[string]time.Time{"host": time.Unix(1800000000, 0)} },
		Unresumed:       func() int { return 1 },
		OpenMigrations: func(context.Context) ([]migrate.PacedMigration, error) {
			return []migrate.PacedMigration{
				{Migration: api.Migration{VolumeID: "a", Phase: "copy", RateBytesPerSecond: 1000, OverlayBytes: 4096, ExposedSeconds: 90.5, OverlayShared: true}},
				{Migration: api.Migration{VolumeID: "b", Phase: "copy", RateBytesPerSecond: 500, GuestPaused: "no room"}},
				{Migration: api.Migration{VolumeID: "d", State: api.MigrationStarted, StoppedAt: new(time.Time), ChainProblem: &api.ChainProblem{}}},
				{Migration: api.Migration{VolumeID: "e", State: api.MigrationNeedsOperator, StoppedAt: new(time.Time)}},
				{Migration: api.Migration{VolumeID: "c", Phase: "verify", RateBytesPerSecond: 7000, OverlayBytes: 8192}},
			}, nil
		},
		OverlayFreeBytes: func(context.Context) (int64, error) { return 1 << 30, nil },
		ThinPools: func(context.Context) ([]thin.Pool, error) {
			return []thin.Pool{
				{Name: "vg/pool", Usage: thin.Usage{Data: 0.5, Metadata: 0.25}},
				{Name: "vg/full", Usage: thin.Usage{Data: 1, Metadata: 0.5, Trouble: "it has no room for data"}},
				{Name: "vg/lost", Usage: thin.Usage{Trouble: "it has failed"}},
			}, errors.New("one could not be read")
		},
		CopyTotals: func() (time.Duration, int64, int64) { return 1500 * time.Millisecond, 1 << 20, 1 << 21 },
		GuestDisks: func() []GuestDisk { return nil },
		DiskStats:  func(context.Context, string, string) (*hv.DiskStats, error) { return nil, hv.ErrUnavailable },
	}
}

func newMetrics(s Sources) *Metrics {
	m := New("1.2.3", []string{"migration_copy"})
	m.Watch(s, slog.New(slog.DiscardHandler))
	return m
}

// wantLines compares the scraped lines of the named metrics, without comments.
func wantLines(t *testing.T, m *Metrics, want string, names ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape is answered with %d: %s", w.Code, w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), lines); diff != "" {
		t.Errorf("metrics (-want +got)\n%s", diff)
	}
}

func TestWhatHappensIsCounted(t *testing.T) {
	m := newMetrics(sources())
	m.OpFinished("migration_copy", op.StateUndone, &op.Failure{Code: "copy_mismatch"})
	m.OpFinished("migration_copy", op.StateUndone, &op.Failure{Code: "no_space"})
	m.OpFinished("migration_copy", op.StateDone, nil)
	m.OpFinished("migration_copy", op.StateDone, nil)
	m.MigrationEnded(api.MigrationCancelled)
	wantLines(t, m, `volferry_copy_mismatches_total 1
volferry_migrations_total{result="cancelled"} 1
volferry_migrations_total{result="completed"} 0
volferry_migrations_total{result="error"} 0
volferry_ops_total{kind="migration_copy",result="done"} 2
volferry_ops_total{kind="migration_copy",result="undone"} 2`, "volferry_ops_total", "volferry_migrations_total", "volferry_copy_mismatches_total")
}

func TestTimesAreSeconds(t *testing.T) {
	m := newMetrics(sources())
	m.PhaseDone("copy", 90*time.Second)
	m.GuestStalled("switch", 40*time.Millisecond)
	m.Reconciled(250 * time.Millisecond)
	wantLines(t, m, `volferry_migration_phase_seconds_bucket{phase="copy",le="60"} 0
volferry_migration_phase_seconds_bucket{phase="copy",le="300"} 1
volferry_migration_phase_seconds_sum{phase="copy"} 90
volferry_migration_stall_seconds_bucket{at="switch",le="0.025"} 0
volferry_migration_stall_seconds_bucket{at="switch",le="0.05"} 1
volferry_migration_stall_seconds_sum{at="switch"} 0.04`,
		`volferry_migration_phase_seconds_bucket{phase="copy",le="60"}`, `volferry_migration_phase_seconds_bucket{phase="copy",le="300"}`,
		`volferry_migration_stall_seconds_bucket{at="switch",le="0.025"}`, `volferry_migration_stall_seconds_bucket{at="switch",le="0.05"}`,
		"volferry_migration_phase_seconds_sum", `volferry_migration_stall_seconds_sum{at="switch"}`)
	wantLines(t, m, "volferry_reconcile_seconds 0.25", "volferry_reconcile_seconds")
}

func TestWhatIsNowIsReadAtTheScrape(t *testing.T) {
	wantLines(t, newMetrics(sources()), `volferry_build_info{version="1.2.3"} 1
volferry_copy_bytes_total 1.048576e+06
volferry_copy_offloaded_bytes_total 2.097152e+06
volferry_copy_paced_seconds_total 1.5
volferry_copy_rate_bytes_per_second 1500
volferry_disks_changed 1
volferry_guest_write_seconds_sum 0
volferry_guest_write_seconds_count 0
volferry_guests_not_resumed 1
volferry_guests_on_released_source 1
volferry_guests_paused_by_io_error 1
volferry_host_fenced 1
volferry_journal_up 1
volferry_libvirt_up 1
volferry_migrations_active 5
volferry_migrations_stopped 1
volferry_needs_operator 2
volferry_overlay_bytes{volume="a"} 4096
volferry_overlay_bytes{volume="c"} 8192
volferry_overlay_exposed_seconds{storage="shared",volume="a"} 90.5
volferry_overlay_free_bytes 1.073741824e+09
volferry_registry_up 0
volferry_tasks_running 3`,
		"volferry_build_info", "volferry_copy_bytes_total", "volferry_copy_offloaded_bytes_total", "volferry_copy_paced_seconds_total", "volferry_copy_rate_bytes_per_second",
		"volferry_disks_changed", "volferry_guest_write_seconds", "volferry_guests_not_resumed", "volferry_guests_on_released_source", "volferry_guests_paused_by_io_error", "volferry_host_fenced", "volferry_tasks_running", "volferry_journal_up", "volferry_libvirt_up", "volferry_migrations_active", "volferry_migrations_stopped", "volferry_needs_operator",
		"volferry_overlay_bytes", "volferry_overlay_exposed_seconds", "volferry_overlay_free_bytes", "volferry_registry_up", "volferry_reconcile_seconds")
}

// Each kind of volferry_copies_paced is counted once. A kind without copies is a series of 0,
// otherwise an alert would miss the first copy.
func TestWhatHoldsCopiesBackIsCountedByItsKind(t *testing.T) {
	s := sources()
	s.OpenMigrations = func(context.Context) ([]migrate.PacedMigration, error) {
		paced := func(doing, requests string) migrate.PacedMigration {
			return migrate.PacedMigration{Migration: api.Migration{Pacing: "in words"}, PacingKind: move.PacingKind{Doing: doing, Requests: requests}}
		}
		return []migrate.PacedMigration{
			paced("gives_way", "flushes"), paced("gives_way", "flushes"), paced("keeps_share", "reads"), paced("measures", ""), paced("stands_still", ""), {},
		}, nil
	}
	wantLines(t, newMetrics(s), `volferry_copies_paced 5
volferry_copy_pace_state{doing="catches_up",requests=""} 0
volferry_copy_pace_state{doing="does_not_help",requests="flushes"} 0
volferry_copy_pace_state{doing="does_not_help",requests="reads"} 0
volferry_copy_pace_state{doing="does_not_help",requests="writes"} 0
volferry_copy_pace_state{doing="gives_way",requests="flushes"} 2
volferry_copy_pace_state{doing="gives_way",requests="reads"} 0
volferry_copy_pace_state{doing="gives_way",requests="writes"} 0
volferry_copy_pace_state{doing="keeps_share",requests="flushes"} 0
volferry_copy_pace_state{doing="keeps_share",requests="reads"} 1
volferry_copy_pace_state{doing="keeps_share",requests="writes"} 0
volferry_copy_pace_state{doing="measures",requests=""} 1
volferry_copy_pace_state{doing="stands_still",requests=""} 1
volferry_copy_pace_state{doing="throttles_guest",requests=""} 0
volferry_copy_pace_state{doing="waits_for_dst",requests=""} 0`, "volferry_copies_paced", "volferry_copy_pace_state")
}

func TestWhatCannotBeReadIsLeftOutOfTheScrape(t *testing.T) {
	s := sources()
	s.OpenMigrations = func(context.Context) ([]migrate.PacedMigration, error) { return nil, errors.New("journal is away") }
	s.OverlayFreeBytes = func(context.Context) (int64, error) { return 0, errors.New("no such directory") }
	m := newMetrics(s)
	wantLines(t, m, "volferry_needs_operator 2", "volferry_needs_operator", "volferry_migrations_active", "volferry_overlay_free_bytes")
}

func TestPrometheusHasNothingToSayAgainstTheNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything().Registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestAScrapeIsWhatPromtoolExpects(t *testing.T) {
	monitoringtest.CheckScrape(t, everything().Registry)
}

func TestAlertsAndDashboardNameMetricsThatThereAre(t *testing.T) {
	monitoringtest.CheckUses(t, everything().Registry, func(name string) bool {
		return name == "volferry_registry_up" || !strings.HasPrefix(name, "volferry_registry_")
	})
}

// The reference is the contract: names, labels and types.
func TestTheReferenceListsExactlyWhatThereIs(t *testing.T) {
	monitoringtest.CheckReference(t, "volferryd", everything().Registry)
}

// A histogram that appeared with its first pause would hide it, because an increase begins at the
// second sample.
func TestPausesAreCountedFromZero(t *testing.T) {
	wantLines(t, newMetrics(sources()), `volferry_migration_stall_seconds_count{at="job"} 0
volferry_migration_stall_seconds_count{at="start"} 0
volferry_migration_stall_seconds_count{at="switch"} 0`, "volferry_migration_stall_seconds_count")
}

// everything returns the metrics of a daemon with every event once.
func everything() *Metrics {
	m := newMetrics(sources())
	m.PhaseDone("start", time.Second)
	m.GuestStalled("start", time.Second)
	m.Reconciled(time.Second)
	return m
}

// TestAThinPoolIsSeenToFill; of a failed pool only the failure is known.
func TestAThinPoolIsSeenToFill(t *testing.T) {
	wantLines(t, newMetrics(sources()), `volferry_thin_pool_data_used_ratio{pool="vg/full"} 1
volferry_thin_pool_data_used_ratio{pool="vg/pool"} 0.5
volferry_thin_pool_metadata_used_ratio{pool="vg/full"} 0.5
volferry_thin_pool_metadata_used_ratio{pool="vg/pool"} 0.25
volferry_thin_pool_writable{pool="vg/full"} 0
volferry_thin_pool_writable{pool="vg/lost"} 0
volferry_thin_pool_writable{pool="vg/pool"} 1`, "volferry_thin_pool_")
}
