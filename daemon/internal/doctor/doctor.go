// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a host for faults that would stop a migration, and fixes some of them.
// Each check has a file. The message of a check may include the advice.
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

// Doctor checks this host.
type Doctor struct {
	Cfg     *config.Config
	Rules   location.Rules
	HV      hv.Hypervisor
	Guards  *guard.Dir
	Proof   *HookProof
	Uplink  *uplink.Uplink
	Client  registryClient
	Storage image.Storage
	Volume  func(ctx context.Context, id string) (api.Volume, error)
	Open    func(ctx context.Context) ([]api.Migration, error)
	// Unresumed returns why libvirt does not resume guests that a move has suspended. It omits
	// guests of this host's open migrations.
	Unresumed func() []string
	Ops       func() []api.Op
	// Written returns this host's released sources with data that their volumes may lack.
	Written  func(ctx context.Context) ([]api.ReleasedSource, error)
	Released func(ctx context.Context) ([]api.ReleasedSource, error)
	// Contradictions returns the volumes with different locations in registry and journal.
	Contradictions func(ctx context.Context) ([]which.Contradiction, error)
	// Tainted returns this host's guests that a move has tainted.
	Tainted func(ctx context.Context) ([]monitor.TaintedGuest, error)
	// Limited returns a text for each write limit of a guest that a move has left.
	Limited func() []string

	// Probe calls each URL of a registry that has several.
	Probe func(ctx context.Context) []client.Endpoint

	fixing sync.Mutex
}

type registryClient interface {
	Version(ctx context.Context) (string, error)
	ClockAhead() (time.Duration, bool)
	Peer() (protocol.Announcement, bool)
}

func ok(name, message string) api.Check { return api.Check{Name: name, Status: "ok", Message: message} }
