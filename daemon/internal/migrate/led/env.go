// SPDX-License-Identifier: Apache-2.0

// Package led has the steps of moves that the registry leads for all guests of a volume: the record
// of their writes, the rounds of the copy, and the copy while all guests are saved.
package led

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
)

// Env has the steps of this package.
type Env struct {
	copier   copier
	guards   guards
	history  history
	hv       hypervisor
	images   images
	now      func() time.Time
	registry registry

	blockjob *blockjob.Env
	look     *look.Env
	move     *move.Env
	seal     *seal.Env
	transfer *transfer.Env
}

// New makes an Env.
func New(d *move.Deps, blockjobEnv *blockjob.Env, lookEnv *look.Env, moveEnv *move.Env, sealEnv *seal.Env, transferEnv *transfer.Env) *Env {
	return &Env{
		copier:   d.Copier,
		guards:   d.Guards,
		history:  d.History,
		hv:       d.HV,
		images:   d.Images,
		now:      d.Now,
		registry: d.Registry,
		blockjob: blockjobEnv,
		look:     lookEnv,
		move:     moveEnv,
		seal:     sealEnv,
		transfer: transferEnv,
	}
}
