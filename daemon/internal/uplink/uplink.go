// SPDX-License-Identifier: Apache-2.0

// Package uplink is the daemon's side of the registry: it tells the registry of
// this host, its pools and its instances, and knows whether the registry can be
// reached. It must not know what operations the daemon runs.
package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/internal/api"
)

// Registry is what the uplink needs of the registry.
type Registry interface {
	Report(ctx context.Context, report api.HostReport) (api.Host, error)
}

// Config says who this host is.
type Config struct {
	HostID   string
	HostName string
	BootID   string
	Version  string
	// OnUp is called when the registry can be reached again.
	OnUp func()
}

// Uplink reports to the registry. Safe for concurrent use.
type Uplink struct {
	cfg      Config
	hv       hv.Hypervisor
	registry Registry
	log      *slog.Logger
	ready    chan struct{}
	once     sync.Once

	mu   sync.Mutex
	host api.Host // zero until the registry has answered once
	err  error    // why the last report failed
}

// New makes an uplink. It does nothing before Run or the first call.
func New(cfg Config, h hv.Hypervisor, r Registry, log *slog.Logger) *Uplink {
	return &Uplink{cfg: cfg, hv: h, registry: r, log: log, ready: make(chan struct{})}
}

const (
	// reportEvery is how often the registry hears of this host.
	reportEvery = 5 * time.Second
	// retryEvery is the same while it does not answer.
	retryEvery = time.Second
	// reportTimeout bounds one report.
	reportTimeout = 10 * time.Second
)

// String names the task.
func (u *Uplink) String() string { return "registry uplink" }

// Ready is closed after the first try: a daemon works without its registry,
// and says so.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// Run reports until ctx ends.
func (u *Uplink) Run(ctx context.Context) error {
	for {
		wait := reportEvery
		if err := u.Refresh(ctx); err != nil {
			wait = retryEvery
		}
		u.once.Do(func() { close(u.ready) })
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Refresh reports now. The error is the registry's.
func (u *Uplink) Refresh(ctx context.Context) error {
	report := u.report(ctx)
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	host, err := u.registry.Report(ctx, report)
	u.mu.Lock()
	wasUp := u.upLocked()
	if u.err = err; err == nil {
		u.host = host
	}
	u.mu.Unlock()
	switch {
	case err == nil && !wasUp:
		u.log.Info("the registry answers", "epoch", host.Epoch)
		u.cfg.OnUp()
	case err != nil && wasUp:
		u.log.Warn("the registry does not answer", "err", err)
	}
	return err
}

// report describes the host. What libvirt does not tell now is left out; the
// registry keeps what it knew.
func (u *Uplink) report(ctx context.Context) api.HostReport {
	// A bound of its own: a slow libvirt is not a registry that is away.
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r := api.HostReport{
		ID: u.cfg.HostID, Name: u.cfg.HostName, Version: u.cfg.Version, BootID: u.cfg.BootID,
		Instances: []api.InstanceReport{},
	}
	if pools, err := u.hv.Pools(ctx); err == nil {
		r.Pools = []api.Pool{}
		for _, p := range pools {
			r.Pools = append(r.Pools, api.Pool{
				Name: p.Name, Host: u.cfg.HostID, Type: p.Type, Path: p.Path, Active: p.Active,
				CapacityBytes: p.CapacityBytes, FreeBytes: p.FreeBytes, UpdatedAt: time.Now().UTC(),
			})
		}
	}
	if doms, err := u.hv.Domains(ctx); err == nil {
		for i := range doms {
			r.Instances = append(r.Instances, api.InstanceReport{ID: doms[i].ID, State: instance.StateOf(doms[i].State)})
		}
	}
	return r
}

// Host returns this host as the registry last knew it, asking now if it never
// did.
func (u *Uplink) Host(ctx context.Context) (api.Host, error) {
	u.mu.Lock()
	host := u.host
	u.mu.Unlock()
	if host.ID != "" {
		return host, nil
	}
	if err := u.Refresh(ctx); err != nil {
		return api.Host{}, fmt.Errorf("introduce this host to the registry: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, nil
}

// Err says why the registry cannot be reached, nil if it can.
func (u *Uplink) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Up says whether the registry answered the last report. Before the first
// answer it is false, while Err is nil.
func (u *Uplink) Up() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upLocked()
}

// upLocked is Up for callers that hold mu.
func (u *Uplink) upLocked() bool { return u.err == nil && u.host.ID != "" }
