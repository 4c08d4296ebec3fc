// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/thin"
	"github.com/volferry/volferry/internal/api"
)

// Sources are the functions that a scrape calls, from several goroutines. None may be nil.
type Sources struct {
	LibvirtUp  func() bool
	RegistryUp func() bool
	// JournalUp reports whether the last write to the journal succeeded.
	JournalUp func() bool
	// Fenced reports whether the host was fenced and has not come back.
	Fenced func() bool
	// TasksRunning returns the number of the registry's requests without an answer.
	TasksRunning func() int
	// Parked returns the number of ops that wait for the operator, and of guests on released
	// sources.
	Parked func() int
	// OnReleased returns the number of released sources that a guest uses.
	OnReleased func() int
	// OpenMigrations returns the migrations that have not ended.
	OpenMigrations func(ctx context.Context) ([]migrate.PacedMigration, error)
	// Unresumed returns the number of guests that a move has suspended and that libvirt does not
	// resume. It omits moves that OpenMigrations returns.
	Unresumed func() int
	// OverlayFreeBytes returns the free space for overlays, in bytes.
	OverlayFreeBytes func(ctx context.Context) (int64, error)
	// ThinPools returns LVM's thin pools. The error names the unreadable pools.
	ThinPools func(ctx context.Context) ([]thin.Pool, error)
	// CopyTotals returns sums since the start of the daemon: for how long copies were throttled in
	// favour of guests, the bytes that copies have copied, and the bytes that the storage itself
	// has copied.
	CopyTotals func() (paced time.Duration, copiedBytes, offloadedBytes int64)
	// CertificateEnds returns, by name, the expiry of the host's certificates. It omits unreadable
	// certificates.
	CertificateEnds func() map[string]time.Time
	// GuestDisks returns the guests' disks that an op moves now. DiskStats reads the counters of a
	// disk. Only Run calls them.
	GuestDisks func() []GuestDisk
	DiskStats  func(ctx context.Context, instanceID, target string) (*hv.DiskStats, error)
}

const scrapeTimeout = 5 * time.Second

var (
	activeDesc       = newDesc("volferry_migrations_active", "Migrations that are not over.")
	stoppedDesc      = newDesc("volferry_migrations_stopped", "Migrations whose last operation failed, and that go on only when somebody asks for it.")
	copyBytesDesc    = newDesc("volferry_copy_bytes_total", "Bytes that copies wrote to destinations, counted when a copy ends or is stopped.")
	offloadBytesDesc = newDesc("volferry_copy_offloaded_bytes_total", "Bytes that storage has copied by itself, counted when a copy ends.")
	copyRateDesc     = newDesc("volferry_copy_rate_bytes_per_second", "Rate of all copies together, now.")
	pacedNowDesc     = newDesc("volferry_copies_paced", "Copies, mirrors and folds that are held back for their guests, or whose guests suffer whether they are or not, now.")
	paceStateDesc    = newDesc("volferry_copy_pace_state", "Copies, mirrors and folds in volferry_copies_paced, by what is done now, and by which requests of their guests take too long, where that is why.", "doing", "requests")
	copyPacedDesc    = newDesc("volferry_copy_paced_seconds_total", "Time that copies, mirrors and folds were held back for guests, counted when one ends or is stopped.")
	overlayDesc      = newDesc("volferry_overlay_bytes", "Disk that the overlay of a volume takes, by the id of the volume.", "volume")
	exposedDesc      = newDesc("volferry_overlay_exposed_seconds", "Time for which what a guest has written since a volume was frozen is in its overlay alone, by the id of the volume and the storage of the overlay: local to the host, or shared.", "volume", "storage")
	overlayFreeDesc  = newDesc("volferry_overlay_free_bytes", "Room that is left for overlays.")
	thinDataDesc     = newDesc("volferry_thin_pool_data_used_ratio", "Used part of the room for data of a thin pool of LVM.", "pool")
	thinMetaDesc     = newDesc("volferry_thin_pool_metadata_used_ratio", "Used part of the room for metadata of a thin pool of LVM.", "pool")
	thinUpDesc       = newDesc("volferry_thin_pool_writable", "1 if a thin pool of LVM takes new data, else 0.", "pool")
	unresumedDesc    = newDesc("volferry_guests_not_resumed", "Guests that a move has paused and that libvirt does not resume.")
	changedDesc      = newDesc("volferry_disks_changed", "Disks that move and whose images somebody else has changed: a snapshot over one, say.")
	pausedDesc       = newDesc("volferry_guests_paused_by_io_error", "Guests that an I/O error has paused while their writes go to an overlay.")
	throttledDesc    = newDesc("volferry_guests_throttled", "Guests whose writes to an overlay are slowed down because the room for overlays is short.")
	guestWriteDesc   = newDesc("volferry_guest_write_seconds", "Time that writes of guests took while an operation moved their volume.")
	parkedDesc       = newDesc("volferry_needs_operator", "Operations, and guests on an image that their volume has left, that wait for a person.")
	onReleasedDesc   = newDesc("volferry_guests_on_released_source", "Images that a volume has left by a move, and that a guest runs on.")
	libvirtDesc      = newDesc("volferry_libvirt_up", "1 if libvirt answers, else 0.")
	registryDesc     = newDesc("volferry_registry_up", "1 if the registry answers, else 0.")
	journalDesc      = newDesc("volferry_journal_up", "1 if the journal takes records, by the last try, else 0.")
	fencedDesc       = newDesc("volferry_host_fenced", "1 while this host is fenced and has not come back, else 0.")
	tasksDesc        = newDesc("volferry_tasks_running", "Requests of the registry that are at work.")
	certificateDesc  = newDesc("volferry_certificate_expiry_timestamp_seconds", "Unix time at which a certificate that this host lives on ends.", "certificate")
	reconcileDesc    = newDesc("volferry_reconcile_seconds", "Time that the daemon took at its start to take up every operation and migration that was open; absent until then.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector reads the sources at a scrape. It omits values that cannot be read.
type collector struct {
	Sources
	reconciled *atomic.Int64
	guests     *guestWrites
	log        *slog.Logger
}

// Watch registers the metrics that are read from s at a scrape. Call it once.
func (m *Metrics) Watch(s Sources, log *slog.Logger) {
	m.guests.disks, m.guests.stats = s.GuestDisks, s.DiskStats
	m.Registry.MustRegister(&collector{Sources: s, reconciled: &m.reconciled, guests: &m.guests, log: log})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		activeDesc, stoppedDesc, copyBytesDesc, offloadBytesDesc, copyRateDesc, pacedNowDesc, paceStateDesc, copyPacedDesc, overlayDesc, exposedDesc, overlayFreeDesc,
		thinDataDesc, thinMetaDesc, thinUpDesc, pausedDesc, unresumedDesc, throttledDesc, changedDesc,
		guestWriteDesc, parkedDesc, onReleasedDesc, libvirtDesc, registryDesc, journalDesc, fencedDesc, tasksDesc, certificateDesc, reconcileDesc,
	} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	gauge(libvirtDesc, oneIf(c.LibvirtUp()))
	gauge(registryDesc, oneIf(c.RegistryUp()))
	gauge(journalDesc, oneIf(c.JournalUp()))
	gauge(fencedDesc, oneIf(c.Fenced()))
	gauge(tasksDesc, float64(c.TasksRunning()))
	gauge(parkedDesc, float64(c.Parked()))
	gauge(onReleasedDesc, float64(c.OnReleased()))
	for name, end := range c.CertificateEnds() {
		gauge(certificateDesc, float64(end.Unix()), name)
	}
	paced, copied, offloaded := c.CopyTotals()
	counter(copyPacedDesc, paced.Seconds())
	counter(copyBytesDesc, float64(copied))
	counter(offloadBytesDesc, float64(offloaded))
	c.collectOverlayRoom(gauge)
	c.collectThinPools(gauge)
	if took := c.reconciled.Load(); took > 0 {
		gauge(reconcileDesc, time.Duration(took).Seconds())
	}
	writes, total := c.guests.totals()
	metrics <- prometheus.MustNewConstSummary(guestWriteDesc, writes, total.Seconds(), nil)
	c.collectMigrations(gauge)
}

func (c *collector) collectOverlayRoom(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	free, err := c.OverlayFreeBytes(ctx)
	if err != nil {
		c.log.Warn("the room for overlays could not be read for a scrape", "err", err)
		return
	}
	gauge(overlayFreeDesc, float64(free))
}

func (c *collector) collectThinPools(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	pools, err := c.ThinPools(ctx)
	if err != nil {
		c.log.Warn("thin pools could not be read for a scrape", "err", err)
	}
	for _, p := range pools {
		gauge(thinUpDesc, oneIf(p.Trouble == ""), p.Name)
		if p.Data > 0 || p.Metadata > 0 { // both are unknown for a failed pool
			gauge(thinDataDesc, p.Data, p.Name)
			gauge(thinMetaDesc, p.Metadata, p.Name)
		}
	}
}

func (c *collector) collectMigrations(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	open, err := c.OpenMigrations(ctx)
	if err != nil {
		c.log.Warn("the migrations could not be read for a scrape", "err", err)
		return
	}
	gauge(activeDesc, float64(len(open)))
	var rate int64
	paused, unresumed, throttled, changed, stopped, paced := 0, c.Unresumed(), 0, 0, 0, 0
	byPacing := map[move.PacingKind]int{}
	for i := range open {
		if open[i].StoppedAt != nil && open[i].State != api.MigrationNeedsOperator { // migrations that wait for the operator have their own metric
			stopped++
		}
		if open[i].GuestPaused != "" {
			paused++
		}
		if open[i].GuestNotResumed != "" {
			unresumed++
		}
		if open[i].ChainProblem != nil {
			changed++
		}
		if open[i].GuestThrottled != "" {
			throttled++
		}
		if open[i].Pacing != "" {
			paced++
			byPacing[open[i].PacingKind]++
		}
		if phase := copy.Phase(open[i].Phase); phase == copy.PhaseCopy || phase == copy.PhaseOffload {
			rate += open[i].RateBytesPerSecond
		}
		// A volume has at most one open migration, so no label is repeated.
		if open[i].OverlayBytes > 0 {
			gauge(overlayDesc, float64(open[i].OverlayBytes), open[i].VolumeID)
		}
		if open[i].ExposedSeconds > 0 {
			gauge(exposedDesc, open[i].ExposedSeconds, open[i].VolumeID, storageOf(&open[i].Migration))
		}
	}
	gauge(stoppedDesc, float64(stopped))
	gauge(pacedNowDesc, float64(paced))
	for _, kind := range move.PacingKinds() { // a kind without moves is a series of 0
		gauge(paceStateDesc, float64(byPacing[kind]), kind.Doing, kind.Requests)
	}
	gauge(copyRateDesc, float64(rate))
	gauge(pausedDesc, float64(paused))
	gauge(unresumedDesc, float64(unresumed))
	gauge(throttledDesc, float64(throttled))
	gauge(changedDesc, float64(changed))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func storageOf(m *api.Migration) string {
	if m.OverlayShared {
		return "shared"
	}
	return "local"
}
