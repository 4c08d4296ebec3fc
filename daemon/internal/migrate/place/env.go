// SPDX-License-Identifier: Apache-2.0

// Package place has the steps that make, connect and remove the images of a migration, and lock
// and free their places at the registry. dst may be written only if this package made it, or the
// operator gave it.
package place

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
)

// Env has the steps of this package.
type Env struct {
	claims   *location.Claims
	copier   copier
	fence    *move.Fence
	history  history
	host     func(context.Context) (move.Host, error)
	hv       hypervisor
	images   images
	log      *slog.Logger
	mayMove  func(ctx context.Context, volumeID string) error
	registry registry

	look *look.Env
	move *move.Env
	seal *seal.Env
}

// New makes an Env.
func New(d *move.Deps, lookEnv *look.Env, moveEnv *move.Env, sealEnv *seal.Env) *Env {
	return &Env{
		claims:   d.Claims,
		copier:   d.Copier,
		fence:    d.Fence,
		history:  d.History,
		host:     d.Host,
		hv:       d.HV,
		images:   d.Images,
		log:      d.Log,
		mayMove:  d.MayMove,
		registry: d.Registry,
		look:     lookEnv,
		move:     moveEnv,
		seal:     sealEnv,
	}
}
