// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/protocol"
)

// doctor looks for what on this host would stop a migration, before one finds
// out.
type doctor struct {
	cfg     *config
	rules   location.Rules
	hv      hv.Hypervisor
	guards  *guard.Dir
	proof   *hookProof
	uplink  *uplink.Uplink
	client  registryClient
	storage image.Storage
	// volume returns a volume as the registry knows it now.
	volume func(ctx context.Context, id string) (api.Volume, error)
	// open returns the migrations of this host that are not over.
	open func(ctx context.Context) ([]api.Migration, error)
	// unresumed says why guests are paused that a move has suspended and that libvirt does not
	// resume, as far as no open migration of this host says it.
	unresumed func() []string
	// ops returns the operations of this host that are not over.
	ops func() []api.Op
	// written returns the released sources of this host that may have what their volumes lack.
	written func(ctx context.Context) ([]api.ReleasedSource, error)
	// released returns all released sources of this host.
	released func(ctx context.Context) ([]api.ReleasedSource, error)
	// contradictions returns the volumes of which the registry and the journal of this host do not
	// agree.
	contradictions func(ctx context.Context) ([]migrate.Contradiction, error)
	// tainted returns the guests of this host whose domains a move has tainted.
	tainted func(ctx context.Context) ([]migrate.TaintedGuest, error)
	// limited returns the limits on the writes of guests that moves have left.
	limited func() []string

	// probe asks each URL of a registry that has several who answers there.
	probe func(ctx context.Context) []client.Endpoint

	fixing sync.Mutex
}

// registryClient is what doctor asks of the registry itself.
type registryClient interface {
	Version(ctx context.Context) (string, error)
	ClockAhead() (time.Duration, bool)
	Peer() (protocol.Announcement, bool)
}

func ok(name, message string) api.Check { return api.Check{Name: name, Status: "ok", Message: message} }
