// SPDX-License-Identifier: Apache-2.0

// Package sharedmove moves volumes that several guests have, on one host or on several. Either all
// guests are saved during the copy, or the hosts copy in rounds while the guests write, and the
// guests are saved only for the last round. All state is in the store, and the ids of the calls to
// hosts are computed from the migration, so a new loop continues after any stop.
package sharedmove

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Moves has the open moves, and announces their changes.
type Moves interface {
	Open(ctx context.Context) ([]workflow.Pause, error)
	Changed() <-chan struct{}
}

// Phases begins the phases with paused guests, and cancels or finishes moves.
type Phases interface {
	Suspend(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Save(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Copy(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Flip(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	Resume(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Cancel(ctx context.Context, call store.Call, ref string, why *api.Error) (workflow.Pause, error)
	Finish(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
}

// Results records the results of the calls about instances, and of the calls to the copy host.
type Results interface {
	SetInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error)
	SetCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error)
}

// LiveMoves begins the phases of a live move, and records the calls to the guests' hosts.
type LiveMoves interface {
	Ask(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, hostID string, c workflow.LiveCall) (workflow.Pause, error)
	Answer(ctx context.Context, call store.Call, id, hostID string, c workflow.LiveCall, a workflow.LiveAnswer) (workflow.Pause, error)
	Pass(ctx context.Context, call store.Call, id string, from, to workflow.PausePhase) (workflow.Pause, error)
	Made(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	Again(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error)
}

// Rates has the measured rates of saving and restoring guests' RAM.
type Rates interface {
	Memory(ctx context.Context, host string, bytes int64) (workflow.MemoryRate, error)
}

// Config has the dependencies of a Loop.
type Config struct {
	Moves     Moves
	Phases    Phases
	Results   Results
	LiveMoves LiveMoves
	Rates     Rates
	Tasks     hostop.Tasks
	Relay     hostop.Relay
	Log       *slog.Logger
	// Every is the interval of the loop and of its queries of ops; 0 means reconcile.DefaultEvery.
	Every time.Duration
}

// Loop advances every move. A registry has one.
type Loop struct {
	*reconcile.Loop
	cfg        Config
	background *hostop.Background
}

func call(p *workflow.Pause) store.Call {
	if p.Live != nil {
		return store.Call{Who: "live-shared"}
	}
	return store.Call{Who: "pause-all"}
}

func (l *Loop) hosts(p *workflow.Pause) *hostop.Client {
	return &hostop.Client{Tasks: l.cfg.Tasks, Relay: l.cfg.Relay, Call: call(p), Every: l.Every()}
}
