// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/power"
	"github.com/volferry/volferry/daemon/internal/instance/repair"
	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
)

// Env has the plans of all op kinds of instances.
type Env struct {
	Subject *subject.Env
	Memory  *memory.Env
	Power   *power.Env
	Shelf   *shelf.Env
	Repair  *repair.Env
}

// NewEnv makes an Env. host returns this host's identity.
func NewEnv(cfg subject.Config, ports subject.Ports, runner subject.Runner, journal op.Journal, host func(context.Context) (subject.Host, error), log *slog.Logger) *Env {
	cfg.BootID = cmp.Or(cfg.BootID, uuid.NewString())
	d := &subject.Deps{Ports: ports, Cfg: cfg, Runner: runner, Journal: journal, Host: host, Log: log}
	e := &Env{Subject: subject.New(d)}
	e.Memory = memory.New(d, e.Subject)
	e.Power = power.New(d, e.Memory, e.Subject)
	e.Shelf = shelf.New(d, e.Power, e.Subject)
	e.Repair = repair.New(d, e.Subject)
	return e
}
