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
	*Space

	allocation allocation
	cfg        *move.Config
	claims     *location.Claims
	containers move.Containers
	devices    location.Connector
	dirs       directories
	domains    domains
	guards     guards
	held       location.Guests
	host       func(context.Context) (move.Host, error)
	images     images
	pools      pools
	processes  processes
	registry   registry
	users      imageUsers
	versions   versions

	look     *look.Env
	released *released.Sources
	which    *which.Finder
}

// New makes Checks. host returns this host once the registry knows it.
func New(cfg *move.Config, ports *move.Ports, env *plans.Env, reader *history.Reader, sources *released.Sources, finder *which.Finder,
	host func(context.Context) (move.Host, error), log *slog.Logger,
) *Checks {
	return &Checks{
		Space:      newSpace(cfg, ports, reader, log),
		allocation: ports.Images,
		cfg:        cfg,
		claims:     ports.Claims,
		containers: ports.Images,
		devices:    ports.HV,
		dirs:       ports.Images,
		domains:    ports.HV,
		guards:     ports.Guards,
		held:       ports.HV,
		host:       host,
		images:     ports.Images,
		pools:      ports.HV,
		processes:  ports.HV,
		registry:   ports.Registry,
		users:      ports.Images,
		versions:   ports.HV,
		look:       env.Look,
		released:   sources,
		which:      finder,
	}
}
