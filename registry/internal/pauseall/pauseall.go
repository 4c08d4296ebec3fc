// SPDX-License-Identifier: Apache-2.0

// Package pauseall moves volumes with all their guests paused: it has the hosts save
// the guests, one host copy the volume, and the hosts wake the guests. All that it
// must remember is in the store, and the ids of what it asks for follow from the
// migration: so it may be ended at any moment, and what begins next goes on. It knows
// nothing of how a guest is saved or a volume copied.
package pauseall

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

const (
	// DefaultEvery is how often the loop looks, and how often a host is asked how far
	// an op is.
	DefaultEvery = time.Second
	// firstPause and longestPause are before a call is made again that got no answer,
	// or was refused for the moment.
	firstPause   = 2 * time.Second
	longestPause = time.Minute
	// mostAttempts is how often what can still be taken back is tried: guests that are
	// saved already wait meanwhile.
	mostAttempts = 5
)

// Store is where the moves are.
type Store interface {
	OpenPauses(ctx context.Context) ([]store.Pause, error)
	SetPauseInstance(ctx context.Context, call store.Call, id string, phase store.PausePhase, g store.PauseInstance) (store.Pause, error)
	SetPauseCopy(ctx context.Context, call store.Call, id string, phase store.PausePhase, attempt int, dropEnd string, why *api.Error) (store.Pause, error)
	CopyPause(ctx context.Context, call store.Call, id string) (store.Pause, error)
	FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (store.Pause, error)
	CancelPause(ctx context.Context, call store.Call, ref string, why *api.Error) (store.Pause, error)
	FinishPause(ctx context.Context, call store.Call, id string) (store.Pause, error)
	Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error)
}

// Relay asks hosts.
type Relay interface {
	Do(ctx context.Context, req relay.Request) (status int, body []byte, err error)
}

// Config is what a Loop needs.
type Config struct {
	Store Store
	Relay Relay
	Log   *slog.Logger
	// Every is DefaultEvery where it is 0.
	Every time.Duration
}

// Loop looks after every move with all guests paused. There is one per registry.
type Loop struct {
	cfg   Config
	ready chan struct{}
	// asking waits for the calls that are on their way.
	asking sync.WaitGroup

	mu sync.Mutex
	// busy are the lines about which a host is being asked now.
	busy map[line]bool
	// later are the lines that wait to be asked about again.
	later map[line]pause
}

// line is what is asked about one call after the other: an instance of a migration,
// or one of the copies.
type line struct{ migration, what string }

// The lines of the copy host, beside those of the instances.
const (
	lineCopy = "copy"
	lineDrop = "drop"
)

type pause struct {
	until time.Time
	next  time.Duration
}

// call is who changes the moves, for the audit trail.
var call = store.Call{Who: "pause-all"}

// New returns a loop that does nothing before it runs.
func New(c Config) *Loop {
	if c.Every == 0 {
		c.Every = DefaultEvery
	}
	return &Loop{cfg: c, ready: make(chan struct{}), busy: map[line]bool{}, later: map[line]pause{}}
}

// String names the task.
func (l *Loop) String() string { return "moves with all guests paused" }

// Ready implements service.Task.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Run looks after every move until ctx ends. What hosts do then goes on.
func (l *Loop) Run(ctx context.Context) error {
	close(l.ready)
	defer l.asking.Wait()
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	told := false
	for {
		err := l.look(ctx)
		if err != nil && ctx.Err() == nil && !told {
			// Once: the next looks will say the same.
			l.cfg.Log.Warn("moves with all guests paused cannot be looked after; they are tried again", "err", err)
		}
		told = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look brings every move as far as it can be brought now.
func (l *Loop) look(ctx context.Context) error {
	pauses, err := l.cfg.Store.OpenPauses(ctx)
	if err != nil {
		return err
	}
	for i := range pauses {
		// A move that went on meanwhile is looked at with the next round.
		if err := l.advance(ctx, &pauses[i]); err != nil && api.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	return nil
}

// background runs one call about a line, if none is on its way and its turn has come.
// Its trouble is looked at again with a later round.
func (l *Loop) background(ctx context.Context, key line, do func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, waits := l.later[key]; l.busy[key] || waits && time.Now().Before(p.until) {
		return
	}
	l.busy[key] = true
	l.asking.Go(func() {
		err := do(ctx)
		if api.CodeOf(err) == api.CodeConflict {
			err = nil // the move went on meanwhile
		}
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("a call of a move with all guests paused is made again", "migration", key.migration, "about", key.what, "err", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.busy, key)
		if err == nil {
			delete(l.later, key)
			return
		}
		next := max(l.later[key].next, firstPause)
		l.later[key] = pause{until: time.Now().Add(next), next: min(2*next, longestPause)}
	})
}

func (l *Loop) isBusy(key line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy[key]
}
