// SPDX-License-Identifier: Apache-2.0

// Package released lists the sources that moves of this host have left, watches for writes to
// them, deletes them, and refuses to overwrite data that only they may have.
package released

import (
	"log/slog"
	"time"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Sources has the sources that moves of this host have left. It is safe for concurrent use.
type Sources struct {
	admission *request.Admission
	audit     func(api.EventPost)
	claims    *location.Claims
	hv        hypervisor
	images    images
	journal   history.Journal
	log       *slog.Logger
	now       func() time.Time
	registry  registry
	runner    *op.Runner

	history *history.Reader
	place   *place.Env
	which   *which.Finder

	sources writtenSources
}

// New makes Sources. admission admits the deletions.
func New(ports *move.Ports, env *plans.Env, reader *history.Reader, finder *which.Finder, admission *request.Admission, log *slog.Logger) *Sources {
	return &Sources{
		admission: admission, audit: ports.Audit, claims: ports.Claims, hv: ports.HV, images: ports.Images, journal: reader.Journal, log: log,
		now: ports.Now, registry: ports.Registry, runner: reader.Runner,
		history: reader, place: env.Place, which: finder,
	}
}
