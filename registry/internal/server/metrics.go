// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// scrapeTimeout bounds how long a scrape may hold a read connection.
const scrapeTimeout = 5 * time.Second

// Metrics are the registry's Prometheus metrics. Their names are part of the public contract.
type Metrics struct {
	// Registry is the Prometheus registry that the metrics server exposes.
	Registry *prometheus.Registry
	requests *prometheus.HistogramVec
	commits  prometheus.Histogram
	batches  prometheus.Histogram
	refused  *prometheus.CounterVec
}

// NewMetrics returns the metrics of a registry of this version.
func NewMetrics(version string) *Metrics {
	latency := prometheus.ExponentialBuckets(0.0001, 2.5, 12) // 0.1 ms to 2.4 s
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volferry_registry_request_seconds", Help: "Time to answer a request.", Buckets: latency,
		}, []string{"route", "code"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "volferry_registry_commit_seconds", Help: "Time to make a commit durable.", Buckets: latency,
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "volferry_registry_commit_batch_size", Help: "Changes in one commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "volferry_registry_connections_refused_total", Help: "TLS connections that a bound refused.",
		}, []string{"bound"}),
	}
	for _, bound := range []string{service.BoundAddress, service.BoundCaller} {
		m.refused.WithLabelValues(bound)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "volferry_build_info", Help: "1, for the version of this program.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.Registry.MustRegister(info, m.requests, m.commits, m.batches, m.refused)
	return m
}

// Commit counts a commit; use it as store.Options.OnCommit.
func (m *Metrics) Commit(changes int, took time.Duration) {
	m.commits.Observe(took.Seconds())
	m.batches.Observe(float64(changes))
}

// Refused counts a refused connection; use it as service.TLS.OnRefused.
func (m *Metrics) Refused(bound string) { m.refused.WithLabelValues(bound).Inc() }

// Watch adds the metrics of a store.
func (m *Metrics) Watch(s *workflow.Store, log *slog.Logger) {
	m.Registry.MustRegister(&counter{store: s, log: log})
}

// WatchDatabase adds the metric volferry_registry_database_up.
func (m *Metrics) WatchDatabase(up func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "volferry_registry_database_up", Help: "1 if the database takes changes, by the last try, else 0.",
	}, func() float64 { return oneIf(up()) }))
}

// WatchCertificates adds the expiry of certificates.
func (m *Metrics) WatchCertificates(lifetimes func() []mtls.Lifetime) {
	m.Registry.MustRegister(certificates(lifetimes))
}

// certificates reads lifetimes at each scrape. It omits unreadable certificates.
type certificates func() []mtls.Lifetime

var certificateDesc = prometheus.NewDesc("volferry_registry_certificate_expiry_timestamp_seconds",
	"Unix time at which a certificate that the registry lives on ends.", []string{"certificate"}, nil)

func (certificates) Describe(descs chan<- *prometheus.Desc) { descs <- certificateDesc }

func (c certificates) Collect(metrics chan<- prometheus.Metric) {
	for _, l := range c() {
		if l.Err == nil {
			metrics <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(l.Until.Unix()), l.Name)
		}
	}
}

func (m *Metrics) request(route httpjson.Route, status int, took time.Duration) {
	m.requests.WithLabelValues(route.Method+" "+route.Path, strconv.Itoa(status)).Observe(took.Seconds())
}

type counter struct {
	store *workflow.Store
	log   *slog.Logger
}

var (
	attachmentsDesc = prometheus.NewDesc("volferry_registry_attachments", "Attachments by state.", []string{"state"}, nil)
	locksDesc       = prometheus.NewDesc("volferry_registry_locks", "Volumes that a migration holds.", nil, nil)
	hostsDesc       = prometheus.NewDesc("volferry_registry_hosts", "Hosts by status.", []string{"status"}, nil)
	readOnlyDesc    = prometheus.NewDesc("volferry_registry_read_only", "1 while the registry takes no changes because its database was restored from a backup, else 0.", nil, nil)
	trailDesc       = prometheus.NewDesc("volferry_registry_audit_trail_intact", "1 if the audit trail was as it was written when last read, else 0; absent until it was read.", nil, nil)
)

func (c *counter) Describe(descs chan<- *prometheus.Desc) {
	descs <- attachmentsDesc
	descs <- locksDesc
	descs <- hostsDesc
	descs <- readOnlyDesc
	descs <- trailDesc
}

func (c *counter) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	_, readOnly := c.store.ReadOnly()
	gauge(readOnlyDesc, oneIf(readOnly))
	if last, looked := c.store.Trail.LastCheck(); looked {
		gauge(trailDesc, oneIf(last.Err == nil))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	counts, err := c.store.Counts(ctx)
	if err != nil {
		c.log.Warn("the registry could not be counted for a scrape", "err", err)
		return
	}
	gauge(locksDesc, float64(counts.Locks))
	// Export zeros too, so that an alert can distinguish them from a missing metric.
	for _, state := range []api.AttachmentState{
		api.AttachmentReserved, api.AttachmentAttaching, api.AttachmentAttached, api.AttachmentDetaching, api.AttachmentError,
	} {
		gauge(attachmentsDesc, float64(counts.Attachments[state]), string(state))
	}
	for _, status := range []string{api.HostUp, api.HostSuspect, api.HostFenced} {
		gauge(hostsDesc, float64(counts.Hosts[status]), status)
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
