// SPDX-License-Identifier: Apache-2.0

// Package which finds the copy of a volume that has every acknowledged write of its guest, and
// contradictions between the registry, this host's journal, libvirt and the kernel. It changes
// nothing.
package which

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
)

// Finder finds the copy of a volume that has every acknowledged write. It is safe for concurrent
// use.
type Finder struct {
	claims      *location.Claims
	host        func(context.Context) (move.Host, error)
	hv          hypervisor
	images      images
	registry    registry
	sharedPools []string

	history *history.Reader
	overlay *overlay.Env
	plans   *plans.Env
}

// New makes a finder. host returns this host as the registry knows it.
func New(cfg *move.Config, ports *move.Ports, env *plans.Env, reader *history.Reader, host func(context.Context) (move.Host, error)) *Finder {
	return &Finder{
		claims: ports.Claims, host: host, hv: ports.HV, images: ports.Images, registry: ports.Registry, sharedPools: cfg.SharedPools,
		history: reader, overlay: env.Overlay, plans: env,
	}
}
