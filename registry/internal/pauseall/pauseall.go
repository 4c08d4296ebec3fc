// SPDX-License-Identifier: Apache-2.0

// Package pauseall moves volumes with all their guests paused: hosts save the guests, one host
// copies the volume, and the hosts restore the guests. All state is in the store, and the ids of
// its requests follow from the migration, so the loop may stop at any moment and a new one
// continues. The package does not know how a guest is saved or a volume copied.
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

// mostAttempts bounds the attempts of a call that can still be undone, because saved guests wait
// for it.
const mostAttempts = 5

// suspendWithin is how long suspended guests wait for the last one. No guest is saved yet, so all
// can be resumed without loss.
const suspendWithin = 10 * time.Second

// Moves has the open moves, and announces their changes.
type Moves interface {
	Open(ctx context.Context) ([]workflow.Pause, error)
	Changed() <-chan struct{}
}

// Phases begins the phases of moves with all guests paused, and ends the moves.
type Phases interface {
	Suspend(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Save(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Copy(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Flip(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error)
	Resume(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
	Canceller
	Finish(ctx context.Context, call store.Call, id string) (workflow.Pause, error)
}

// Results records the results of hosts' calls.
type Results interface {
	SetInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error)
	SetCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error)
}

// LiveMoves begins another generation of a live move with suspended guests.
type LiveMoves interface {
	Again(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error)
}

// Config has the dependencies of a Loop.
type Config struct {
	Moves     Moves
	Phases    Phases
	Results   Results
	LiveMoves LiveMoves
	Tasks     hostop.Tasks
	Relay     hostop.Relay
	Log       *slog.Logger
	// Every is the interval of the loop and of its queries of ops; 0 means reconcile.DefaultEvery.
	Every time.Duration
}

// Loop advances every move with all guests paused. A registry has one.
type Loop struct {
	*reconcile.Loop
	cfg        Config
	hosts      *hostop.Client
	background *hostop.Background
}

// The subjects of calls of the copy host; other subjects are instances (hostop.Subject).
const (
	workCopy  = "copy"
	workCheck = "check"
	workDrop  = "drop"
)

// call identifies the loop in the audit trail.
var call = store.Call{Who: "pause-all"}
