// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/pauseall"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// LiveMoves records the calls of hosts and their results, and begins the phases before the guests
// are paused.
type LiveMoves interface {
	Ask(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, hostID string, c workflow.LiveCall) (workflow.Pause, error)
	Answer(ctx context.Context, call store.Call, id, hostID string, c workflow.LiveCall, a workflow.LiveAnswer) (workflow.Pause, error)
	Pass(ctx context.Context, call store.Call, id string, from, to workflow.PausePhase) (workflow.Pause, error)
	Made(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	Again(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error)
}

// Phases moves the volume to dst, or cancels its move.
type Phases interface {
	Flip(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	pauseall.Canceller
}

// Rates has the speed of hosts.
type Rates interface {
	Memory(ctx context.Context, host string, bytes int64) (workflow.MemoryRate, error)
}

// Config has the dependencies of a Loop.
type Config struct {
	Moves     pauseall.Moves
	LiveMoves LiveMoves
	Phases    Phases
	Rates     Rates
	Tasks     hostop.Tasks
	Relay     hostop.Relay
	Log       *slog.Logger
	// Every is the interval of the loop and of its queries of ops; 0 means reconcile.DefaultEvery.
	Every time.Duration
}

// Loop advances every live move. A registry has one, and one Loop of package pauseall.
type Loop struct {
	*reconcile.Loop
	cfg        Config
	hosts      *hostop.Client
	background *hostop.Background
}

// call identifies the loop in the audit trail.
var call = store.Call{Who: "live-shared"}

func (l *Loop) cancel(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	return pauseall.Cancel(ctx, l.cfg.Phases, l.cfg.Log, call, p, why)
}
