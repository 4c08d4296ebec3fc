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
	devices  location.Connector
	domains  domains
	fence    *move.Fence
	history  history
	host     func(context.Context) (move.Host, error)
	images   images
	log      *slog.Logger
	maker    imageMaker
	pools    pools
	registry registry
	remover  imageRemover
	rights   imageRights
	unplugs  move.Unplugs

	look *look.Env
	move *move.Env
	seal *seal.Env
}

// New makes an Env.
func New(d *move.Deps, lookEnv *look.Env, moveEnv *move.Env, sealEnv *seal.Env) *Env {
	return &Env{
		claims:   d.Claims,
		copier:   d.Copier,
		devices:  d.HV,
		domains:  d.HV,
		fence:    d.Fence,
		history:  d.History,
		host:     d.Host,
		images:   d.Images,
		log:      d.Log,
		maker:    d.Images,
		pools:    d.HV,
		registry: d.Registry,
		remover:  d.Images,
		rights:   d.Images,
		unplugs:  d.Unplugs,
		look:     lookEnv,
		move:     moveEnv,
		seal:     sealEnv,
	}
}
