// SPDX-License-Identifier: Apache-2.0

// Package preflight has the checks before a migration's first change, and chooses the method, the
// destination and the allocation.
package preflight

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/released"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
)

// Checks makes the checks before a migration. It changes nothing, and is safe for concurrent use.
type Checks struct {
	cfg      *move.Config
	claims   *location.Claims
	guards   guards
	host     func(context.Context) (move.Host, error)
	hv       hypervisor
	images   images
	log      *slog.Logger
	registry registry

	history  *history.Reader
	look     *look.Env
	released *released.Sources
	which    *which.Finder
}

// New makes Checks. host returns this host once the registry knows it.
func New(cfg *move.Config, ports *move.Ports, env *plans.Env, reader *history.Reader, sources *released.Sources, finder *which.Finder,
	host func(context.Context) (move.Host, error), log *slog.Logger,
) *Checks {
	return &Checks{
		cfg: cfg, claims: ports.Claims, guards: ports.Guards, host: host, hv: ports.HV, images: ports.Images, log: log, registry: ports.Registry,
		history: reader, look: env.Look, released: sources, which: finder,
	}
}
