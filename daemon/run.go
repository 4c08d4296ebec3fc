// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/volferry/volferry/daemon/internal/adminapi"
	"github.com/volferry/volferry/daemon/internal/attach"
	"github.com/volferry/volferry/daemon/internal/audit"
	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/journal"
	"github.com/volferry/volferry/daemon/internal/libvirt"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/daemon/internal/volume"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/fault"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/version"
)

func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	if err := config.MakeDirs(cfg); err != nil {
		return err
	}
	who, err := thisHost(cfg)
	if err != nil {
		return err
	}
	cfg.HostID = who.id
	if err := config.MakeDirs(cfg); err != nil { // this host's directory in a shared overlay_dir needs the id
		return err
	}
	gid, err := settings.GroupID(cfg.SocketGroup)
	if err != nil {
		return err
	}
	reserve := config.NewReserve(cfg, log)
	defer reserve.Close()
	conn := libvirt.New(libvirt.Config{Socket: cfg.LibvirtSocket, DefinitionsDir: cfg.LibvirtConfigDir, StateDir: cfg.LibvirtStateDir, Clusters: cfg.RBDClusters, Processes: programs.Processes(), Log: log})
	virt := programs.WithConnectors(conn, cfg)
	records, err := journal.Open(ctx, filepath.Join(cfg.StateDir, "journal.db"))
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }()
	if backup := records.MigratedFrom(); backup != "" {
		log.Info("the journal has a new schema; what it was before is kept", "backup", backup)
	}
	if err := programs.RunPrograms(ctx, cfg, log); err != nil {
		return err
	}
	if err := config.SweepDirs(cfg); err != nil {
		return err
	}
	runner, err := op.New(op.Config{
		Journal: records, Describe: request.Describe, MakeDurable: conn.MakeDurable,
		Context: hv.WithOp, Log: log, FaultPoint: fault.Point, WaitPoll: time.Second,
	})
	if err != nil {
		return err
	}
	defer runner.Stop()
	state, err := uplink.OpenState(cfg.StateDir)
	if err != nil {
		return err
	}
	var callers audit.Callers
	registry, err := client.NewRegistry(cfg.Registry, client.TLS(cfg.TLSCA, cfg.TLSCert, cfg.TLSKey), programs.Dialing(), client.ForCaller(callers.Of), client.OfRegistry(state.RegistryID),
		client.As(func() (string, int64) { return who.id, state.Epoch() }))
	if err != nil {
		return err
	}
	guards := guard.New(cfg.GuardDir(), cfg.LibvirtHook)
	up, err := uplink.New(uplink.Config{
		HostID: who.id, HostName: who.name, BootID: bootID(), Version: version.String(), State: state, SharedPools: cfg.SharedPools,
		HV: virt, Registry: registry, Guards: guards, Ops: hostOps{runner}, Log: log,
	})
	if err != nil {
		return err
	}
	runner.OnChange(func(string) { up.Changed() })

	site := up.Site(registry)
	own := []string{cfg.StateDir, cfg.OverlayDir, cfg.SaveDir}
	rules := location.Rules{AllowedPaths: cfg.AllowedPaths, NBDServers: cfg.NBDServers, RBD: cfg.RBDClusters, Own: own, Storage: virt}
	storage := image.Storage{Privileged: programs.Privileged(), Access: programs.Access(), Network: programs.NetworkAccess(cfg, conn), Secret: conn.Secret, Files: openfile.Files{Places: &rules}}
	copier := transfer.NewCopier(cfg.CursorDir(), storage.Privileged.ThinBlockBytes, storage.Network, log)
	copier.Passphrase, copier.Files = storage.Passphrase, storage.Files
	claims := &location.Claims{
		Site: site, Pools: virt.Pools, HostID: who.id, HostName: who.name, SharedPools: cfg.SharedPools,
		Own: own,
	}
	asked := audit.NewOutbox(cfg.AuditDir(), registry.PostEvent, log)
	unplugs := attach.NewPendingUnplugs(virt, virt, records, bootID())
	migrations := migrate.New(move.Config{
		OverlayDir: cfg.Overlays(), OverlaysShared: cfg.OverlayDirShared && cfg.OverlaysNotShared() == "", Rules: rules, OverlayMinFreeBytes: cfg.OverlayMinFreeBytes, SharedPools: cfg.SharedPools,
		ThrottleBelowBytes: cfg.OverlayThrottleBelowBytes, ThrottleFor: time.Duration(cfg.OverlayThrottleSeconds) * time.Second,
	}, move.Ports{
		HV: virt, Images: storage, Copier: copier, Updates: copier, Units: copier, Registry: site, Guards: guards, Blobs: records, Claims: claims,
		Unplugs: unplugs, JobStart: cfg.JobStart, CountPaced: copier.CountPaced, Audit: asked.Note,
	}, runner, records, migrationHost(up), log)
	connectMigrations(up, migrations)
	attachments := attach.New(attach.Config{Rules: rules}, attach.Ports{
		Domains: virt, Disks: virt, Devices: virt, Pools: virt, Processes: virt,
		Registry: site, Images: storage, Migrations: migrations, Recorded: migrations.Which.CheckVolumeRecorded, Known: up, Guards: guards, Unplugs: unplugs, Claims: claims, Audit: asked.Note,
		Report: func(ctx context.Context) { _ = up.Refresh(ctx) }, // after an error the next call reports again
	}, runner, records, func(ctx context.Context) (attach.Host, error) {
		h, err := up.Host(ctx)
		return attach.Host{ID: h.ID, Name: h.Name, Epoch: h.Epoch}, err
	}, log)
	volumes := volume.New(volume.Config{Rules: rules, SharedPools: cfg.SharedPools},
		volume.Ports{Pools: virt, Guests: virt, Registry: site, Changes: site, Images: storage, Files: storage, Claims: claims, Left: migrations.Released.Left, Adoptable: migrations.Released.CheckAdoptable, Recorded: migrations.Which.CheckVolumeRecorded}, runner, records,
		func(ctx context.Context) (string, error) { h, err := up.Host(ctx); return h.ID, err }, log)

	instances := instance.New(instance.Config{SaveDir: cfg.SaveDir, BootID: bootID()}, instance.Ports{
		Domains: virt, Definitions: virt, Devices: virt, Power: virt, Memory: virt,
		Registry: site, Guards: guards, Locations: attachments, Images: storage, Migrations: migrations, MovingGuests: migrations.Monitor, Parts: migrations.Parts, Recorded: migrations.Which.CheckRecorded, Known: up,
		Report: up.ReportNow,
	}, runner, records, instanceHost(up, who), log)

	numbers := newMetrics(runner)
	health := healthOf(records, runner, migrations, virt, up, numbers)
	numbers.Watch(metricsOf(cfg, health, virt, up, runner, migrations, instances, storage, copier), log)
	began := time.Now()
	// The ops of a dead daemon continue before new requests are accepted. If this host is known to
	// be fenced, only a switch with a paused guest continues; other ops wait until the fence is
	// handled.
	if up.Fence() != nil {
		runner.Halt()
		if err := runner.FinishCritical(ctx); err != nil {
			return err
		}
	} else if err := runner.Resume(ctx); err != nil {
		return err
	}

	proxy, err := proxied(cfg, registry)
	if err != nil {
		return err
	}
	transport, base := proxy.Transport()
	address := registryAddress(cfg.Registry)
	scraped := service.MetricsServer(cfg.MetricsListen, promhttp.HandlerFor(numbers.Registry, promhttp.HandlerOpts{}), health, log)
	look := &doctor.Doctor{
		Cfg: cfg, Rules: rules, HV: virt, Guards: guards, Proof: doctor.NewHookProof(cfg.StateDir, guards), Uplink: up, Client: registry, Volume: registry.Volume, Storage: storage,
		Open:      func(ctx context.Context) ([]api.Migration, error) { return migrations.List(ctx, false) },
		Unresumed: instances.Unresumed,
		Ops:       func() []api.Op { return adminapi.OpenOps(runner) },
		Written: func(ctx context.Context) ([]api.ReleasedSource, error) {
			return migrations.Released.WrittenSources(ctx)
		},
		Released:       func(ctx context.Context) ([]api.ReleasedSource, error) { return migrations.Released.List(ctx, "") },
		Contradictions: migrations.Which.Contradictions,
		Tainted:        migrations.Monitor.TaintedGuests,
		Limited:        migrations.Monitor.LeftLimits,
		Probe:          registry.Probe,
	}
	admin := adminapi.New(adminapi.Deps{
		HV: virt, Runner: runner, Migrations: migrations, Volumes: volumes, Attachments: attachments, Instances: instances, Registry: site, Uplink: up, Audit: asked, Callers: &callers,
		Adopter:       &instance.Adopter{HV: virt, Registry: site, Inspect: inspectWith(storage), HostID: who.id, HostName: who.name, Claims: claims, Rules: rules, Adoptable: migrations.Released.CheckAdoptable},
		RegistryProxy: adminapi.NewRegistryProxy(transport, base, address), RegistryAddress: address,
		CheckRegistry: registry.CheckPeer,
		Peer:          registry.Peer,
		Endpoints:     registry.Endpoints,
		Doctor:        look.Checks,
		FixDoctor:     look.Fixes,
		ShortOfRoom:   look.ShortOfRoom,
		Certificates:  func() []api.Check { return doctor.Certificates(cfg) },
		Metrics:       scraped.Checks,
		Log:           log, HostID: who.id, HostName: who.name, Version: version.String(), Since: time.Now().UTC(),
	})
	tasks := []service.Task{
		connection{conn, migrations},
		newTask("libvirt events", func(ctx context.Context) error { return wakeOnConnect(ctx, virt, migrations) }),
		up,
		newTask("tasks", func(ctx context.Context) error { return up.RunTasks(ctx, admin.Perform) }),
		newTask("audit", asked.Run),
		newTask("attachments", attachments.Run),
		newTask("volumes", volumes.Run),
		newTask("migrations", func(ctx context.Context) error {
			return migrations.Run(ctx, func() { numbers.Reconciled(time.Since(began)) })
		}),
		newTask("chains", migrations.Monitor.WatchChains),
		newTask("overlays", migrations.Monitor.WatchOverlays),
		newTask("room for overlays", migrations.Monitor.WatchRoom),
		newTask("released sources", migrations.Released.WatchSources),
		newTask("followed guests", migrations.Parts.WatchLive),
		newTask("guest metrics", numbers.Run),
		newTask("hook", look.WatchHook),
		newTask("reserve", func(ctx context.Context) error { return config.KeepReserve(ctx, reserve, log) }),
		service.SocketServer(cfg.Socket, gid, after(conn.Ready(), admin.Handler(httpjson.SocketAuthorizer(gid))), log),
	}
	if settings.Listens(cfg.MetricsListen) {
		tasks = append(tasks, scraped)
	}
	log.Info("volferryd", "version", version.String(), "host", who.id, "name", who.name, "socket", cfg.Socket)
	return service.Run(ctx, log, health, tasks...)
}

// task makes a service.Task of a function. The task is ready at once: libvirt or the registry may
// not answer for long, and the daemon must answer meanwhile.
type task struct {
	name  string
	run   func(context.Context) error
	ready chan struct{}
}

func newTask(name string, run func(context.Context) error) *task {
	return &task{name: name, run: run, ready: make(chan struct{})}
}

func (t *task) Run(ctx context.Context) error {
	close(t.ready)
	return t.run(ctx)
}

func (t *task) Ready() <-chan struct{} { return t.ready }
func (t *task) String() string         { return t.name }

// connection makes a task of the connection to libvirt. When the daemon is told to stop, the
// connection continues while a guest is paused for a switch.
type connection struct {
	*libvirt.Conn
	migrations *migrate.Manager
}

// quiesceBound is how long a stopping daemon waits for such a switch; systemd's own timeout is
// longer.
const quiesceBound = 10 * time.Second

// Run implements service.Task.
func (c connection) Run(ctx context.Context) error {
	inner, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(inner, quiesceBound)
		defer cancel()
		c.migrations.Monitor.Quiesce(bounded)
		disconnect()
	})
	defer stop()
	return c.Conn.Run(inner)
}

// after returns a handler that serves requests once ready is closed. systemd already accepts
// requests; before the first attempt to connect to libvirt they would fail.
func after(ready <-chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-ready:
		case <-r.Context().Done():
		}
		h.ServeHTTP(w, r)
	})
}

func wakeOnConnect(ctx context.Context, h hv.Hypervisor, m *migrate.Manager) error {
	for e := range h.Events(ctx) {
		if e.Kind == hv.EventConnected {
			m.Wake(true, false)
		}
	}
	return nil
}

func registryAddress(target string) string { return strings.TrimPrefix(target, "unix://") }

// proxied returns the client for requests that are passed on to the registry. Over TLS they have
// this host's permissions. At a socket of this machine they have a local administrator's, because
// the caller is one.
func proxied(cfg *config.Config, registry *client.Registry) (*client.Registry, error) {
	if cfg.OverTLS() {
		return registry, nil
	}
	return client.NewRegistry(cfg.Registry)
}

// bootID returns the id of this boot of the host, or "" if the kernel does not report it.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func inspectWith(s image.Storage) instance.Inspect {
	return func(ctx context.Context, path string, format api.Format) (l api.Location, err error) {
		l = api.Location{Path: path, Format: format}
		if l.Backing, err = s.ReadBacking(ctx, path, format); err != nil {
			return l, err
		}
		info, err := s.Inspect(ctx, l)
		if err == nil {
			err = s.CheckFits(ctx, l, info)
		}
		l.SizeBytes, l.Identity = info.SizeBytes, info.Identity
		return l, err
	}
}
