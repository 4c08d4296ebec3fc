// SPDX-License-Identifier: Apache-2.0

// Package metrics has the daemon's metrics for Prometheus. Their names are part of the public
// contract (docs/reference/metrics.md). States are read through Sources at a scrape.
package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Metrics are the daemon's metrics. It is safe for concurrent use.
type Metrics struct {
	// Registry is the gatherer of the metrics server.
	Registry *prometheus.Registry

	ops        *prometheus.CounterVec
	migrations *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	stalls     *prometheus.HistogramVec
	mismatches prometheus.Counter
	reconciled atomic.Int64 // nanoseconds; 0 while unknown
	guests     guestWrites
}

// New returns the metrics of a daemon of this version that runs ops of these kinds. All counters
// begin at 0, so that Prometheus sees the first event as an increase.
func New(version string, kinds []string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		ops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "volferry_ops_total", Help: "Operations that ended, by kind and by result: done or undone.",
		}, []string{"kind", "result"}),
		migrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "volferry_migrations_total", Help: "Migrations that ended, by result: completed, cancelled or error.",
		}, []string{"result"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volferry_migration_phase_seconds", Help: "Time from the request of a phase to its success.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}, []string{"phase"}),
		stalls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volferry_migration_stall_seconds", Help: "How long a guest could not write: at the start of a migration, when QEMU begins to copy (job), and at the switch that ends the migration.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5},
		}, []string{"at"}),
		mismatches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "volferry_copy_mismatches_total", Help: "Operations that ended because a copy was not equal to its source.",
		}),
	}
	for _, kind := range kinds {
		m.ops.WithLabelValues(kind, string(op.StateDone))
		m.ops.WithLabelValues(kind, string(op.StateUndone))
	}
	for _, result := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled, api.MigrationError} {
		m.migrations.WithLabelValues(string(result))
	}
	for _, at := range []string{"start", "job", "switch"} {
		m.stalls.WithLabelValues(at)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "volferry_build_info", Help: "1, for the version of this program.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.Registry.MustRegister(info, m.ops, m.migrations, m.phases, m.stalls, m.mismatches)
	return m
}

// OpFinished counts an ended op, done or undone. why is the reason of the undo, or nil.
func (m *Metrics) OpFinished(kind string, result op.State, why *op.Failure) {
	m.ops.WithLabelValues(kind, string(result)).Inc()
	if why != nil && why.Code == string(api.CodeCopyMismatch) {
		m.mismatches.Inc()
	}
}

// PhaseDone counts a phase of a migration (start, copy, complete, cancel) that succeeded.
func (m *Metrics) PhaseDone(phase string, took time.Duration) {
	m.phases.WithLabelValues(phase).Observe(took.Seconds())
}

// GuestStalled records how long a guest could not write, at "start", "job" or "switch"
// (migrate.Observer).
func (m *Metrics) GuestStalled(at string, d time.Duration) {
	m.stalls.WithLabelValues(at).Observe(d.Seconds())
}

// MigrationEnded counts a migration that has ended.
func (m *Metrics) MigrationEnded(result api.MigrationState) {
	m.migrations.WithLabelValues(string(result)).Inc()
}

// Reconciled records how long the starting daemon took to take over its predecessor's work.
func (m *Metrics) Reconciled(took time.Duration) { m.reconciled.Store(int64(took)) }

// HasReconciled reports whether Reconciled was called.
func (m *Metrics) HasReconciled() bool { return m.reconciled.Load() > 0 }

// Run samples the writes of guests until ctx ends. Call Watch first.
func (m *Metrics) Run(ctx context.Context) error { return m.guests.run(ctx) }
