// SPDX-License-Identifier: Apache-2.0

// Package drain empties pools: it has the hosts move the volumes of a drain, as
// many at once as was asked for. All that it must remember is in the store, and
// the ids of what it asks for follow from drain and volume: so it may be ended
// at any moment, and what begins next goes on. It knows nothing of how a volume
// is moved.
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

// Store is where drains and what they move are.
type Store interface {
	OpenDrains(ctx context.Context) ([]api.Drain, error)
	RefreshDrainVolumes(ctx context.Context, call store.Call, drainID string) error
	NextDrainVolumes(ctx context.Context, drainID string) (moving, pending []api.DrainVolume, err error)
	SetDrainVolume(ctx context.Context, call store.Call, drainID string, v api.DrainVolume) error
	FinishDrain(ctx context.Context, call store.Call, drainID string) (api.Drain, error)
	Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	Volume(ctx context.Context, ref string, as store.Viewer) (api.Volume, error)
	Migration(ctx context.Context, ref string, as store.Viewer) (api.Migration, error)
}

// Relay asks hosts.
type Relay interface {
	Do(ctx context.Context, req relay.Request) (status int, body []byte, err error)
	Present(hostID string) bool
}

// Config is what a Loop needs.
type Config struct {
	Store     Store
	Relay     Relay
	Placement relay.Placement
	Log       *slog.Logger
	// Every is how often the loop looks, reconcile.DefaultEvery where it is 0.
	Every time.Duration
}

// Loop moves the volumes of every drain. There is one per registry.
type Loop struct {
	*reconcile.Loop
	cfg   Config
	queue reconcile.WorkQueue[workKey]
}

// workKey is a volume of a drain.
type workKey struct{ drain, volume string }

func keyOf(d api.Drain, v api.DrainVolume) workKey { return workKey{d.ID, v.VolumeID} }

// New returns a loop that does nothing before it runs.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.Loop = reconcile.NewLoop("drains", c.Every, c.Log, l.reconcile, l.queue.Wait)
	return l
}

// reconcile brings every drain as far as it can be brought now.
func (l *Loop) reconcile(ctx context.Context) error {
	drains, err := l.cfg.Store.OpenDrains(ctx)
	if err != nil {
		return err
	}
	for i := range drains {
		if err := l.advance(ctx, drains[i]); err != nil {
			return err
		}
	}
	return nil
}

// call is who changes drains, for the audit trail.
var call = store.Call{Who: "drain"}

func (l *Loop) advance(ctx context.Context, d api.Drain) error {
	if d.State == api.DrainRunning {
		if err := l.cfg.Store.RefreshDrainVolumes(ctx, call, d.ID); err != nil {
			return err
		}
	}
	moving, pending, err := l.cfg.Store.NextDrainVolumes(ctx, d.ID)
	if err != nil {
		return err
	}
	for _, v := range moving {
		if err := l.follow(ctx, d, v); err != nil {
			return err
		}
	}
	if d.State != api.DrainRunning {
		return nil
	}
	if len(moving)+len(pending) == 0 {
		return l.finish(ctx, d)
	}
	free := d.Parallel - len(moving)
	for _, v := range pending {
		if free <= 0 {
			break
		}
		begun, err := l.begin(ctx, d, v)
		if err != nil {
			return err
		}
		if begun {
			free--
		}
	}
	return nil
}

func (l *Loop) finish(ctx context.Context, d api.Drain) error {
	_, err := l.cfg.Store.FinishDrain(ctx, call, d.ID)
	switch {
	case api.CodeOf(err) == api.CodeConflict: // a volume has come just now
		return nil
	case err != nil:
		return err
	}
	l.cfg.Log.Info("a pool is drained", "drain", d.ID, "pool", d.Pool)
	return nil
}

// begin takes a volume on: it counts as moving before its host is asked. One
// whose host is not there, or whose turn to be tried again has not come, is left
// for later.
func (l *Loop) begin(ctx context.Context, d api.Drain, v api.DrainVolume) (bool, error) {
	if !l.queue.Due(keyOf(d, v)) {
		return false, nil
	}
	volume, err := l.cfg.Store.Volume(ctx, v.VolumeID, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil // the next refresh settles it
	}
	if err != nil {
		return false, err
	}
	host, err := l.cfg.Placement.Mover(ctx, volume, d.ToPool)
	switch api.CodeOf(err) { //nolint:exhaustive // all others are no answer
	case api.CodeHypervisorUnavailable:
		return false, nil // it is fenced
	case api.CodeUnsupportedDisk:
		return false, l.settle(ctx, d, v, api.DrainVolumeSkipped, api.AsError(err))
	}
	if err != nil || !l.cfg.Relay.Present(host.ID) {
		return false, err
	}
	v.State, v.Host, v.MigrationID, v.Error = api.DrainVolumeMoving, host.Name, "", nil
	err = l.cfg.Store.SetDrainVolume(ctx, call, d.ID, v)
	if api.CodeOf(err) == api.CodeConflict {
		return false, nil // it was paused or stopped just now
	}
	if err != nil {
		return false, err
	}
	l.ask(ctx, d, v)
	return true, nil
}

// settle records what became of a volume.
func (l *Loop) settle(ctx context.Context, d api.Drain, v api.DrainVolume, state string, why *api.Error) error {
	v.State, v.Error = state, why
	if err := l.cfg.Store.SetDrainVolume(ctx, call, d.ID, v); err != nil {
		return err
	}
	if state != api.DrainVolumePending && state != api.DrainVolumeMoving {
		l.queue.Settled(keyOf(d, v))
	}
	l.cfg.Log.Info("volume of a drain", "drain", d.ID, "volume", v.VolumeName, "host", v.Host, "state", state, "migration", v.MigrationID, "why", why)
	return nil
}
