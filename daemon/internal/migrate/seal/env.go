// SPDX-License-Identifier: Apache-2.0

// Package seal proves that a migration's images are the images of its beginning: src is unchanged
// since it was frozen or left, dst is the image that the migration made, and a frozen RBD image
// still has its snapshot.
package seal

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// Env proves that images are unchanged since the migration began.
type Env struct {
	history  history
	hv       hypervisor
	images   images
	log      *slog.Logger
	now      func() time.Time
	registry registry

	look *look.Env
	move *move.Env
}

// New makes an Env.
func New(d *move.Deps, lookEnv *look.Env, moveEnv *move.Env) *Env {
	return &Env{
		history:  d.History,
		hv:       d.HV,
		images:   d.Images,
		log:      d.Log,
		now:      d.Now,
		registry: d.Registry,
		look:     lookEnv,
		move:     moveEnv,
	}
}
