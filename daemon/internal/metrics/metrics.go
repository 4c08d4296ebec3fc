// SPDX-License-Identifier: Apache-2.0

// Package metrics keeps the daemon's numbers for Prometheus. Their names are part of the
// public contract and are listed in docs/reference/metrics.md. Events are counted when they
// are reported; states are read at a scrape through the functions of Sources. The package
// must not know who reports and who answers.
package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Metrics are the daemon's numbers. Safe for concurrent use.
type Metrics struct {
	// Registry is what the metrics server gathers from.
	Registry *prometheus.Registry

	ops        *prometheus.CounterVec
	migrations *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	stalls     *prometheus.HistogramVec
	mismatches prometheus.Counter
	reconciled atomic.Int64 // nanoseconds, 0 until it is known
	guests     guestWrites
}

// New returns the metrics of a daemon of this version that runs ops of these kinds. All
// counters stand at 0 from the start, so that the first event is seen as an increase.
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
			Name: "volferry_migration_stall_seconds", Help: "How long a guest could not write, at the start and at the switch that ends a migration.",
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

// OpFinished counts an op that ended, done or undone. Why is the reason for undoing it, nil
// if it was done.
func (m *Metrics) OpFinished(kind string, result op.State, why *op.Failure) {
	m.ops.WithLabelValues(kind, string(result)).Inc()
	if why != nil && why.Code == string(api.CodeCopyMismatch) {
		m.mismatches.Inc()
	}
}

// PhaseDone counts a phase of a migration (start, copy, complete, cancel) that
// reached its goal.
func (m *Metrics) PhaseDone(phase string, took time.Duration) {
	m.phases.WithLabelValues(phase).Observe(took.Seconds())
}

// GuestStalled counts a guest that could not write for so long, at "start" or
// at "switch".
func (m *Metrics) GuestStalled(at string, d time.Duration) {
	m.stalls.WithLabelValues(at).Observe(d.Seconds())
}

// MigrationEnded counts a migration that is over.
func (m *Metrics) MigrationEnded(result api.MigrationState) {
	m.migrations.WithLabelValues(string(result)).Inc()
}

// Reconciled keeps how long the daemon took at its start to take up the work of the daemon
// before it.
func (m *Metrics) Reconciled(took time.Duration) { m.reconciled.Store(int64(took)) }

// HasReconciled reports whether Reconciled was called.
func (m *Metrics) HasReconciled() bool { return m.reconciled.Load() > 0 }

// Run samples the writes of guests until ctx ends. Watch comes first.
func (m *Metrics) Run(ctx context.Context) error { return m.guests.run(ctx) }
