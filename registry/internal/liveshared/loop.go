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

// Store holds the moves.
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

// Config is what a Loop needs.
type Config struct {
	Store Store
	Relay hostop.Relay
	Log   *slog.Logger
	// Every is how often the loop looks, and how often it asks a host how far an op is; 0
	// is reconcile.DefaultEvery.
	Every time.Duration
}

// Loop advances every move whose guests write meanwhile. There is one Loop per registry,
// beside that of package pauseall.
type Loop struct {
	*reconcile.Loop
	cfg        Config
	hosts      *hostop.Client
	background *hostop.Background
}

// call is who changes the moves, for the audit trail.
var call = store.Call{Who: "live-shared"}

func (l *Loop) cancel(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	return pauseall.Cancel(ctx, l.cfg.Store, l.cfg.Log, call, p, why)
}
