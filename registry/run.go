// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/fault"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/service"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/version"
	"github.com/volferry/volferry/registry/internal/drain"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/server"
	"github.com/volferry/volferry/registry/internal/sharedmove"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// housekeepEvery bounds how long changed state is only in memory.
const housekeepEvery = 30 * time.Second

// gatherFor is how long a commit waits for further changes: about the duration of a commit.
const gatherFor = time.Millisecond

func serve(ctx context.Context, cfg *config, log *slog.Logger) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.DB), 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	metrics := server.NewMetrics(version.String())
	db, err := workflow.Open(ctx, cfg.DB, store.Options{
		OnCommit:   metrics.Commit,
		GatherFor:  gatherFor,
		OnReadOnly: func(reason string) { log.Error("the registry is read-only", "why", reason) },
		OnDoubt: func(host string) {
			log.Error("a host shows a mark that this registry has neither given out nor signed; nothing that it asks for is done", "host", host)
		},
		SharedPools: cfg.SharedPools,
		FaultPoint:  fault.Point,
	})
	if err != nil {
		return err
	}
	// Close it after the tasks, which use it.
	defer func() { err = errors.Join(err, db.Close()) }()
	if backup := db.MigratedFrom(); backup != "" {
		log.Info("the database has a new schema; what it was before is kept", "backup", backup)
	}
	metrics.Watch(db, log)

	hosts := relay.New(relay.Config{Tasks: db.Tasks, Hosts: db.Hosts, Trail: db.Trail, Log: log, OnBreak: db.Hosts.BrokeOff})
	defer hosts.Close()
	health := healthOf(db)
	metrics.WatchDatabase(func() bool { return health.Up(databaseProbe) })
	tasks, err := cfg.tasks(db, hosts, metrics, health, log)
	if err != nil {
		return err
	}
	log.Info(server.Program, "version", version.String(), "socket", cfg.Socket, "db", cfg.DB)
	return service.Run(ctx, log, health, tasks...)
}

func (c *config) tasks(db *workflow.Store, hosts *relay.Relay, metrics *server.Metrics, health *service.Health, log *slog.Logger) ([]service.Task, error) {
	gid, err := settings.GroupID(c.SocketGroup)
	if err != nil {
		return nil, err
	}
	gate, address, err := c.openGate(log)
	if err != nil {
		return nil, err
	}
	scraped := service.MetricsServer(c.MetricsListen, promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}), health, log)
	srv := server.Config{
		Scraped: scraped.Checks,
		Store:   db, Relay: hosts, Metrics: metrics, Authorize: mtls.Authorizer(httpjson.SocketAuthorizer(gid)), Version: version.String(), Log: log,
	}
	if gate != nil {
		srv.TLSTrouble, srv.Certificates = gate.Trouble, gate.Lifetimes
		metrics.WatchCertificates(gate.Lifetimes)
	}
	api := server.New(srv).Handler()
	tasks := []service.Task{
		&housekeeper{store: db, log: log, ready: make(chan struct{})},
		&auditor{store: db, log: log, ready: make(chan struct{})},
		drain.New(drain.Config{
			Drains: db.Drains, Tasks: db.Tasks, Volumes: db.Volumes, Instances: db.Instances, Migrations: db.Migrations,
			Relay: hosts, Placement: relay.PlacementOf(db.Store, hosts.Present),
			MoveShared: relay.SharedMoves{Hosts: db.Hosts, Pauses: db.Pauses, LiveMoves: db.LiveMoves, Relay: hosts}.Begin, Log: log,
		}),
		sharedmove.New(sharedmove.Config{
			Moves: db.Pauses, Phases: db.Pauses, Results: db.Pauses, LiveMoves: db.LiveMoves, Rates: db.Rates, Tasks: db.Tasks, Relay: hosts, Log: log,
		}),
		service.SocketServer(c.Socket, gid, api, log),
	}
	if gate != nil {
		tasks = append(tasks, gate, service.TLSServer(address, c.tls(gate, metrics), gate.Handler(api), log))
	}
	if settings.Listens(c.MetricsListen) {
		tasks = append(tasks, scraped)
	}
	return tasks, nil
}

func (c *config) tls(gate *mtls.Gate, metrics *server.Metrics) service.TLS {
	return service.TLS{
		Config: gate.Config(), Caller: gate.Caller, OnRefused: metrics.Refused,
		Bounds: service.Bounds{Handshakes: c.MaxHandshakes, HandshakesPerAddress: c.MaxHandshakesPerAddress, ConnectionsPerCaller: c.MaxConnectionsPerCaller},
	}
}

// openGate returns the gate for other hosts and its address; nil if other hosts cannot connect.
func (c *config) openGate(log *slog.Logger) (*mtls.Gate, string, error) {
	address, err := c.address()
	if err != nil {
		return nil, "", err
	}
	if address == "" {
		if c.Listen == listenAuto {
			log.Info("no other host can reach this registry: there is no server certificate; init-ca makes one", "tls_dir", c.TLSDir)
		}
		return nil, "", nil
	}
	gate, err := c.gate(log)
	if err != nil {
		return nil, "", err
	}
	if err := atomicfile.SweepOld(c.TLSDir); err != nil {
		log.Warn("what a killed issue-cert may have left in the TLS directory cannot be removed", "err", err)
	}
	c.warnOfCAKey(log)
	log.Info("other hosts reach this registry", "listen", address, "certificate_until", gate.ServerCertificate().NotAfter.UTC())
	return gate, address, nil
}

// warnOfCAKey warns that this process can read the authority's key, which it does not need.
func (c *config) warnOfCAKey(log *slog.Logger) {
	key := filepath.Join(c.keyDir(), mtls.CAKeyFile)
	f, err := os.Open(key)
	if err != nil {
		return
	}
	_ = f.Close() // nothing was written
	log.Warn("the registry can read the key of the authority: whoever breaks into it can make any certificate; keep the key in a directory of another user and name that in ca_dir", "key", key)
}

type housekeeper struct {
	store *workflow.Store
	log   *slog.Logger
	ready chan struct{}
}

func (h *housekeeper) Run(ctx context.Context) error {
	close(h.ready)
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.keep(ctx)
		case <-ctx.Done():
			h.keep(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// keep does the housekeeping once. It only logs an error: no decision depends on state that was
// not stored.
func (h *housekeeper) keep(ctx context.Context) {
	if err := h.store.Housekeep(ctx); err != nil {
		h.log.Warn("housekeeping was not done", "err", err)
	}
}

func (h *housekeeper) Ready() <-chan struct{} { return h.ready }

func (h *housekeeper) String() string { return "housekeeping" }
