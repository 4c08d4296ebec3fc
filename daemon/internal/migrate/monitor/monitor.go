// SPDX-License-Identifier: Apache-2.0

// Package monitor looks after the guests of open migrations while no op works on them: it watches
// their chains, guards an instance that would start without its newest writes, resumes a guest
// that a full overlay has paused, limits writes while the room for overlays is short, and corrects
// definitions for the operator.
package monitor

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/changes"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// Monitor looks after the guests of open migrations. It is safe for concurrent use.
type Monitor struct {
	audit   func(api.EventPost)
	cfg     *move.Config
	guards  guards
	hv      hypervisor
	journal history.Journal
	log     *slog.Logger
	now     func() time.Time
	runner  *op.Runner
	// watch is notified of migrations with a changed view. opEnds has the keys that ended ops have
	// freed.
	watch, opEnds *changes.Feed

	blockjob  *blockjob.Env
	history   *history.Reader
	move      *move.Env
	overlay   *overlay.Env
	preflight *preflight.Checks
	which     *which.Finder

	chains  chainProblems
	glances chainGlances
	ioStops ioStops
	slowed  slowedGuests
}

// New makes a Monitor. It notifies watch of changed views, and looks again at a guest when opEnds
// has its key.
func New(cfg *move.Config, ports *move.Ports, env *plans.Env, reader *history.Reader, checks *preflight.Checks, finder *which.Finder,
	watch, opEnds *changes.Feed, log *slog.Logger,
) *Monitor {
	return &Monitor{
		audit: ports.Audit, cfg: cfg, guards: ports.Guards, hv: ports.HV, journal: reader.Journal, log: log, now: ports.Now, runner: reader.Runner,
		watch: watch, opEnds: opEnds, glances: chainGlances{},
		blockjob: env.BlockJob, history: reader, move: env.Move, overlay: env.Overlay, preflight: checks, which: finder,
	}
}
