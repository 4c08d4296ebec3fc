// SPDX-License-Identifier: Apache-2.0

// Package drain empties pools: it requests from hosts the moves of a drain's volumes, as many at a
// time as the operator has allowed. All state is in the store, and the ids of the requests are
// computed from drain and volume, so a new loop continues after any stop. The package does not
// know how a volume is moved.
package drain

import (
	"context"
	"log/slog"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// Drains has the drains and their volumes.
type Drains interface {
	Open(ctx context.Context) ([]api.Drain, error)
	RefreshVolumes(ctx context.Context, call store.Call, drainID string) error
	NextVolumes(ctx context.Context, drainID string) (moving, pending []api.DrainVolume, err error)
	SetVolume(ctx context.Context, call store.Call, drainID string, v api.DrainVolume) error
	Finish(ctx context.Context, call store.Call, drainID string) (api.Drain, error)
}

// Tasks has the tasks for hosts.
type Tasks interface {
	Get(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
}

// Relay sends requests to hosts.
type Relay interface {
	Do(ctx context.Context, req relay.Request) (status int, body []byte, err error)
	Present(hostID string) bool
}

// Config has the dependencies of a Loop.
type Config struct {
	Drains     Drains
	Tasks      Tasks
	Volumes    relay.Getter[api.Volume]
	Instances  relay.Getter[api.Instance]
	Migrations relay.Getter[api.Migration]
	Relay      Relay
	Placement  relay.Placement
	// MoveShared begins the move of a volume of several instances (relay.SharedMoves).
	MoveShared func(ctx context.Context, call store.Call, volumeID string, in api.MigrationTarget) (api.Migration, error)
	Log        *slog.Logger
	// Every is the interval of the loop; 0 means reconcile.DefaultEvery.
	Every time.Duration
}

// Loop moves the volumes of every drain. There is one per registry.
type Loop struct {
	*reconcile.Loop
	cfg   Config
	queue reconcile.WorkQueue[workKey]
}

type workKey struct{ drain, volume string }

func keyOf(d api.Drain, v api.DrainVolume) workKey { return workKey{d.ID, v.VolumeID} }

var call = store.Call{Who: "drain"}

func (l *Loop) settle(ctx context.Context, d api.Drain, v api.DrainVolume, state string, why *api.Error) error {
	v.State, v.Error = state, why
	if err := l.cfg.Drains.SetVolume(ctx, call, d.ID, v); err != nil {
		return err
	}
	if state != api.DrainVolumePending && state != api.DrainVolumeMoving {
		l.queue.Settled(keyOf(d, v))
	}
	l.cfg.Log.Info("volume of a drain", "drain", d.ID, "volume", v.VolumeName, "host", v.Host, "state", state, "migration", v.MigrationID, "why", why)
	return nil
}
