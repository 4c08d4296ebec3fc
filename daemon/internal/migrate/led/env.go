// SPDX-License-Identifier: Apache-2.0

// Package led has the steps of moves that the registry leads for all guests of a volume: they
// record the guests' writes, copy in rounds, and copy while all guests are saved.
package led

import (
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
)

// Env has the steps of this package.
type Env struct {
	copier    copier
	domains   domains
	guards    guards
	history   history
	images    images
	limits    hv.WriteLimits
	now       func() time.Time
	processes processes
	registry  registry
	tracker   tracker
	units     move.UnitsCopier

	blockjob *blockjob.Env
	look     *look.Env
	move     *move.Env
	seal     *seal.Env
	transfer *transfer.Env
}

// New makes an Env.
func New(d *move.Deps, blockjobEnv *blockjob.Env, lookEnv *look.Env, moveEnv *move.Env, sealEnv *seal.Env, transferEnv *transfer.Env) *Env {
	return &Env{
		copier:    d.Copier,
		domains:   d.HV,
		guards:    d.Guards,
		history:   d.History,
		images:    d.Images,
		limits:    d.HV,
		now:       d.Now,
		processes: d.HV,
		registry:  d.Registry,
		tracker:   d.HV,
		units:     d.Units,
		blockjob:  blockjobEnv,
		look:      lookEnv,
		move:      moveEnv,
		seal:      sealEnv,
		transfer:  transferEnv,
	}
}
