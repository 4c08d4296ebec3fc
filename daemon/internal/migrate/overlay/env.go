// SPDX-License-Identifier: Apache-2.0

// Package overlay has the steps that change the image of a guest or of a definition: to the
// overlay, to dst, and back to src. It also reports chains that another program changed.
package overlay

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
)

// Env has the steps of this package.
type Env struct {
	guards   guards
	hv       hypervisor
	images   images
	log      *slog.Logger
	now      func() time.Time
	progress *move.ProgressTracker

	blockjob *blockjob.Env
	look     *look.Env
	move     *move.Env
	pause    *pause.Env
	place    *place.Env
	seal     *seal.Env
}

// New makes an Env.
func New(d *move.Deps, blockjobEnv *blockjob.Env, lookEnv *look.Env, moveEnv *move.Env, pauseEnv *pause.Env, placeEnv *place.Env, sealEnv *seal.Env) *Env {
	return &Env{
		guards:   d.Guards,
		hv:       d.HV,
		images:   d.Images,
		log:      d.Log,
		now:      d.Now,
		progress: d.Progress,
		blockjob: blockjobEnv,
		look:     lookEnv,
		move:     moveEnv,
		pause:    pauseEnv,
		place:    placeEnv,
		seal:     sealEnv,
	}
}
