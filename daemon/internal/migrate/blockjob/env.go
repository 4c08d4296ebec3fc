// SPDX-License-Identifier: Apache-2.0

// Package blockjob has the steps that run a block job of QEMU: a mirror to dst, a copy in the
// background, or a commit into src. If a job could not store a block, another job replaces it and
// writes everything.
package blockjob

import (
	"log/slog"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
)

// Env has the steps of this package.
type Env struct {
	blobs       move.Blobs
	countPaced  func(time.Duration)
	domains     domains
	fence       *move.Fence
	guards      guards
	history     history
	images      images
	jobs        jobs
	limits      limits
	log         *slog.Logger
	now         func() time.Time
	progress    *move.ProgressTracker
	writeLimits sync.Mutex

	look     *look.Env
	move     *move.Env
	place    *place.Env
	seal     *seal.Env
	transfer *transfer.Env
}

// New makes an Env.
func New(d *move.Deps, lookEnv *look.Env, moveEnv *move.Env, placeEnv *place.Env, sealEnv *seal.Env, transferEnv *transfer.Env) *Env {
	return &Env{
		blobs:      d.Blobs,
		countPaced: d.CountPaced,
		domains:    d.HV,
		fence:      d.Fence,
		guards:     d.Guards,
		history:    d.History,
		images:     d.Images,
		jobs:       d.HV,
		limits:     d.HV,
		log:        d.Log,
		now:        d.Now,
		progress:   d.Progress,
		look:       lookEnv,
		move:       moveEnv,
		place:      placeEnv,
		seal:       sealEnv,
		transfer:   transferEnv,
	}
}
