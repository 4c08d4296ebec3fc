// SPDX-License-Identifier: Apache-2.0

// Package plans has the plans of all op kinds of a migration (plans.go), made of the steps of the
// packages next to it, and reads earlier ops from the journal.
//
// Each package may call those below it:
//
//	plans
//	overlay, led
//	pause
//	blockjob
//	transfer
//	place
//	seal
//	look
//	move
package plans

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
)

// Env has the plans of all op kinds of a migration.
type Env struct {
	copier  copier
	fence   *move.Fence
	history move.History
	hv      hypervisor

	Move     *move.Env
	Look     *look.Env
	Seal     *seal.Env
	Place    *place.Env
	Transfer *transfer.Env
	BlockJob *blockjob.Env
	Pause    *pause.Env
	Overlay  *overlay.Env
	Led      *led.Env
}

// NewEnv makes an Env. It calls change with the id of each migration that makes progress.
func NewEnv(ports move.Ports, history move.History, host func(context.Context) (move.Host, error), change func(migrationID string), log *slog.Logger) *Env {
	d := move.NewDeps(ports, history, host, change, log)
	e := &Env{copier: d.Copier, fence: d.Fence, history: history, hv: d.HV, Move: move.New(d)}
	e.Look = look.New(d, e.Move)
	e.Seal = seal.New(d, e.Look, e.Move)
	e.Place = place.New(d, e.Look, e.Move, e.Seal)
	e.Transfer = transfer.New(d, e.Look, e.Move, e.Place, e.Seal)
	e.BlockJob = blockjob.New(d, e.Look, e.Move, e.Place, e.Seal, e.Transfer)
	e.Pause = pause.New(d, e.BlockJob, e.Look, e.Move, e.Place, e.Seal, e.Transfer)
	e.Overlay = overlay.New(d, e.BlockJob, e.Look, e.Move, e.Pause, e.Place, e.Seal)
	e.Led = led.New(d, e.BlockJob, e.Look, e.Move, e.Seal, e.Transfer)
	return e
}
