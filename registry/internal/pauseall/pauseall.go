// SPDX-License-Identifier: Apache-2.0

// Package pauseall moves volumes with all their guests paused: it has the hosts save the
// guests, one host copy the volume, and the hosts restore the guests. The store has all
// that the loop must remember, and the ids of its requests follow from the migration, so it
// may be ended at any moment and the next loop goes on. It does not know how a guest is
// saved or how a volume is copied.
package pauseall

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

// mostAttempts is how often what can still be taken back is tried: guests that are
// saved already wait meanwhile.
const mostAttempts = 5

// suspendWithin is how long the guests that are suspended wait for the last one. None
// is saved yet, so all of them can go on as if nothing had been.
const suspendWithin = 10 * time.Second

// Opener has the moves that are open, and announces their changes.
type Opener interface {
	OpenPauses(ctx context.Context) ([]workflow.Pause, error)
	PauseChanged() <-chan struct{}
}

// Store holds the moves with all guests paused.
type Store interface {
	Opener
	SetPauseInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error)
	SetPauseCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error)
	SuspendPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	SavePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	CopyPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	ResumePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	AgainLive(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error)
	Canceller
	FinishPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
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

// Loop advances every move with all guests paused. There is one Loop per registry.
type Loop struct {
	*reconcile.Loop
	cfg        Config
	hosts      *hostop.Client
	background *hostop.Background
}

// What the copy host is asked about, beside the instances (hostop.Subject).
const (
	workCopy  = "copy"
	workCheck = "check"
	workDrop  = "drop"
)

// call is who changes the moves, for the audit trail.
var call = store.Call{Who: "pause-all"}
