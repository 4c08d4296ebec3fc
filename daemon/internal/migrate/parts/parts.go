// SPDX-License-Identifier: Apache-2.0

// Package parts does this host's parts of the moves that the registry leads: the copy of a volume
// with all guests saved, and the calls of a move while all guests write.
package parts

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/preflight"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Parts does this host's parts of moves. It is safe for concurrent use.
type Parts struct {
	admission *request.Admission
	host      func(context.Context) (move.Host, error)
	hv        hypervisor
	images    images
	journal   history.Journal
	log       *slog.Logger
	registry  registry
	runner    *op.Runner

	history   *history.Reader
	look      *look.Env
	preflight *preflight.Checks
}

// New makes Parts. admission admits the ops. host returns this host once the registry knows it.
func New(ports *move.Ports, env *plans.Env, reader *history.Reader, checks *preflight.Checks, admission *request.Admission,
	host func(context.Context) (move.Host, error), log *slog.Logger,
) *Parts {
	return &Parts{
		admission: admission, host: host, hv: ports.HV, images: ports.Images, journal: reader.Journal, log: log,
		registry: ports.Registry, runner: reader.Runner,
		history: reader, look: env.Look, preflight: checks,
	}
}
