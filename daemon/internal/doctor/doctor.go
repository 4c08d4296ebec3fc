// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a host for faults that would stop a migration, and fixes some of them. Each
// check has one file.
package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/protocol"
)

// Doctor checks this host for faults that would stop a migration.
type Doctor struct {
	Cfg     *config.Config
	Rules   location.Rules
	HV      hv.Hypervisor
	Guards  *guard.Dir
	Proof   *HookProof
	Uplink  *uplink.Uplink
	Client  registryClient
	Storage image.Storage
	// volume returns a volume from the registry.
	Volume func(ctx context.Context, id string) (api.Volume, error)
	// open returns the open migrations of this host.
	Open func(ctx context.Context) ([]api.Migration, error)
	// unresumed returns the reasons why guests that a move has suspended stay paused because
	// libvirt does not resume them, except the guests of this host's open migrations.
	Unresumed func() []string
	// ops returns the unfinished operations of this host.
	Ops func() []api.Op
	// written returns the released sources of this host that may have data missing from their
	// volumes.
	Written func(ctx context.Context) ([]api.ReleasedSource, error)
	// released returns all released sources of this host.
	Released func(ctx context.Context) ([]api.ReleasedSource, error)
	// contradictions returns the volumes about which the registry and this host's journal disagree.
	Contradictions func(ctx context.Context) ([]which.Contradiction, error)
	// tainted returns the guests of this host with domains that a move has tainted.
	Tainted func(ctx context.Context) ([]monitor.TaintedGuest, error)
	// limited returns the write limits of guests that moves have not removed.
	Limited func() []string

	// probe asks each URL of a registry with several which registry answers there.
	Probe func(ctx context.Context) []client.Endpoint

	fixing sync.Mutex
}

// registryClient is the part of the registry's client that doctor uses.
type registryClient interface {
	Version(ctx context.Context) (string, error)
	ClockAhead() (time.Duration, bool)
	Peer() (protocol.Announcement, bool)
}

func ok(name, message string) api.Check { return api.Check{Name: name, Status: "ok", Message: message} }
