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

// Store has the moves.
type Store interface {
	pauseall.Opener
	AskLive(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, hostID string, c workflow.LiveCall) (workflow.Pause, error)
	AnswerLive(ctx context.Context, call store.Call, id, hostID string, c workflow.LiveCall, a workflow.LiveAnswer) (workflow.Pause, error)
	PassLive(ctx context.Context, call store.Call, id string, from, to workflow.PausePhase) (workflow.Pause, error)
	MadeLive(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	AgainLive(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error)
	FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	MemoryRate(ctx context.Context, host string, bytes int64) (workflow.MemoryRate, error)
	pauseall.Canceller
	hostop.Store
}

// Config has the dependencies of a Loop.
type Config struct {
	Store Store
	Relay hostop.Relay
	Log   *slog.Logger
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
	return pauseall.Cancel(ctx, l.cfg.Store, l.cfg.Log, call, p, why)
}
