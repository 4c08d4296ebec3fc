// SPDX-License-Identifier: Apache-2.0

// Package pause has the steps that suspend and resume a guest, and those that need it suspended or
// off: the fold of an overlay, the comparison, the abort of a job. A guest is resumed only if the
// migration paused it, and both the definition and QEMU have an image with all its writes.
package pause

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Env has the steps of this package.
type Env struct {
	fence     *move.Fence
	guards    guards
	history   history
	hv        hypervisor
	images    images
	log       *slog.Logger
	now       func() time.Time
	progress  *move.ProgressTracker
	stopping  context.Context
	unresumed *request.Unresumed

	blockjob *blockjob.Env
	look     *look.Env
	move     *move.Env
	place    *place.Env
	seal     *seal.Env
	transfer *transfer.Env
}

// New makes an Env.
func New(d *move.Deps, blockjobEnv *blockjob.Env, lookEnv *look.Env, moveEnv *move.Env, placeEnv *place.Env, sealEnv *seal.Env, transferEnv *transfer.Env) *Env {
	return &Env{
		fence:     d.Fence,
		guards:    d.Guards,
		history:   d.History,
		hv:        d.HV,
		images:    d.Images,
		log:       d.Log,
		now:       d.Now,
		progress:  d.Progress,
		stopping:  d.Stopping,
		unresumed: d.Unresumed,
		blockjob:  blockjobEnv,
		look:      lookEnv,
		move:      moveEnv,
		place:     placeEnv,
		seal:      sealEnv,
		transfer:  transferEnv,
	}
}
