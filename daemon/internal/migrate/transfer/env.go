// SPDX-License-Identifier: Apache-2.0

// Package transfer has the steps that copy src to dst and compare them: by the copy engine, by a
// connector of the storage, or by qemu-img.
package transfer

import (
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
)

// Env has the steps of this package.
type Env struct {
	copier   copier
	history  history
	hv       hypervisor
	images   images
	log      *slog.Logger
	progress *move.ProgressTracker

	look  *look.Env
	move  *move.Env
	place *place.Env
	seal  *seal.Env
}

// New makes an Env.
func New(d *move.Deps, lookEnv *look.Env, moveEnv *move.Env, placeEnv *place.Env, sealEnv *seal.Env) *Env {
	return &Env{
		copier:   d.Copier,
		history:  d.History,
		hv:       d.HV,
		images:   d.Images,
		log:      d.Log,
		progress: d.Progress,
		look:     lookEnv,
		move:     moveEnv,
		place:    placeEnv,
		seal:     sealEnv,
	}
}
