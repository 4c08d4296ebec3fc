// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/reconcile"
	"github.com/volferry/volferry/registry/internal/store"
)

// New returns a loop; call Run to start it.
func New(c Config) *Loop {
	l := &Loop{cfg: c}
	l.Loop = reconcile.NewLoop("drains", c.Every, c.Log, l.reconcile, l.queue.Wait)
	return l
}

func (l *Loop) reconcile(ctx context.Context) error {
	drains, err := l.cfg.Drains.Open(ctx)
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

func (l *Loop) advance(ctx context.Context, d api.Drain) error {
	if d.State == api.DrainRunning {
		if err := l.cfg.Drains.RefreshVolumes(ctx, call, d.ID); err != nil {
			return err
		}
	}
	moving, pending, err := l.cfg.Drains.NextVolumes(ctx, d.ID)
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
	_, err := l.cfg.Drains.Finish(ctx, call, d.ID)
	switch {
	case api.CodeOf(err) == api.CodeConflict: // a volume has just come into the pool
		return nil
	case err != nil:
		return err
	}
	l.cfg.Log.Info("a pool is drained", "drain", d.ID, "pool", d.Pool)
	return nil
}

// begin starts the move of a volume, and reports whether it did. It leaves the volume for later if
// the host is not connected, or another volume's migration has locked the instance. A volume
// counts as moving before its host receives the request.
func (l *Loop) begin(ctx context.Context, d api.Drain, v api.DrainVolume) (bool, error) {
	if !l.queue.Due(keyOf(d, v)) {
		return false, nil
	}
	volume, err := l.cfg.Volumes.Get(ctx, v.VolumeID, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil // the next refresh ends its line
	}
	if err != nil {
		return false, err
	}
	if movesShared(d, volume) {
		return l.take(ctx, d, v, "")
	}
	if held, err := l.held(ctx, volume); held || err != nil {
		return false, err
	}
	host, err := l.cfg.Placement.Mover(ctx, volume, d.ToPool)
	switch api.CodeOf(err) { //nolint:exhaustive // other codes are handled below
	case api.CodeHypervisorUnavailable:
		return false, nil // the host is fenced
	case api.CodeUnsupportedDisk:
		return false, l.settle(ctx, d, v, api.DrainVolumeSkipped, api.AsError(err))
	}
	if err != nil || !l.cfg.Relay.Present(host.ID) {
		return false, err
	}
	return l.take(ctx, d, v, host.Name)
}

// held reports whether the migration of another volume has locked the volume's instance. The move
// must then wait: the host, which sees the guest stop and return, may refuse it permanently.
func (l *Loop) held(ctx context.Context, v api.Volume) (bool, error) {
	if v.Unheld() || len(v.Attachments) > 1 {
		return false, nil
	}
	i, err := l.cfg.Instances.Get(ctx, v.Attachments[0].InstanceID, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil // the instance has just been forgotten
	}
	return i.LockedBy != "" && v.MigrationID == "", err
}

func (l *Loop) take(ctx context.Context, d api.Drain, v api.DrainVolume, host string) (bool, error) {
	v.State, v.Host, v.MigrationID, v.Error = api.DrainVolumeMoving, host, "", nil
	err := l.cfg.Drains.SetVolume(ctx, call, d.ID, v)
	if api.CodeOf(err) == api.CodeConflict {
		return false, nil // the drain was just paused or stopped
	}
	if err != nil {
		return false, err
	}
	l.ask(ctx, d, v)
	return true, nil
}
