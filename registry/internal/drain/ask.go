// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

// follow checks the migration of a moving volume. If the migration's id is unknown, it repeats the
// request to the host under the same idempotency key.
func (l *Loop) follow(ctx context.Context, d api.Drain, v api.DrainVolume) error {
	if v.MigrationID == "" {
		l.ask(ctx, d, v)
		return nil
	}
	m, err := l.cfg.Migrations.Get(ctx, v.MigrationID, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		// The host has not registered the migration yet, or has undone the op.
		l.askOp(ctx, d, v)
		return nil
	}
	if err != nil {
		return err
	}
	switch m.State {
	case api.MigrationCompleted:
		return l.settle(ctx, d, v, api.DrainVolumeMoved, nil)
	case api.MigrationCancelled, api.MigrationError:
		if m.Error == nil && !m.LedByRegistry() {
			l.askWhy(ctx, d, v, m)
			return nil
		}
		if m.Error == nil {
			m.Error = endedAs(m)
		}
		return l.settle(ctx, d, v, api.DrainVolumeFailed, m.Error)
	case api.MigrationNeedsOperator:
		return l.settle(ctx, d, v, api.DrainVolumeFailed, needsOperator(m))
	case api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied,
		api.MigrationCompleting, api.MigrationCancelling, api.MigrationOrphaned:
	}
	return nil
}

func needsOperator(m api.Migration) *api.Error {
	again, _ := m.Cures()
	return api.Errorf(api.CodeNeedsOperator, "migration %s needs an operator; %s. Next: %s; `%s` shows what is known", m.ID, m.StoppedLine(), again,
		shell.Line("volferryctl", "migration", "show", m.ID)).With("migration_id", m.ID)
}

// askWhy asks the host why a migration did not move its volume: only the host's journal has the
// reason. Without an answer the volume fails without the reason.
func (l *Loop) askWhy(ctx context.Context, d api.Drain, v api.DrainVolume, m api.Migration) {
	l.background(ctx, d, v, func(ctx context.Context) error {
		why := endedAs(m)
		o, err := l.op(ctx, d, v)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			why.Message += fmt.Sprintf(" (host %s does not say why: %v)", v.Host, err)
		case o.Error != nil:
			why = o.Error
		}
		return l.settle(ctx, d, v, api.DrainVolumeFailed, why)
	})
}

func endedAs(m api.Migration) *api.Error {
	return api.Errorf(api.CodeConflict, "migration %s of volume %s ended as %s; the volume stays where it was", m.ID, m.VolumeName, m.State)
}

func (l *Loop) ask(ctx context.Context, d api.Drain, v api.DrainVolume) {
	l.background(ctx, d, v, func(ctx context.Context) error {
		// The previous call may have settled the volume since this round began.
		if waits, err := l.waits(ctx, d, v); !waits || err != nil {
			return err
		}
		volume, err := l.cfg.Volumes.Get(ctx, v.VolumeID, store.Viewer{})
		if err != nil {
			return err
		}
		if movesShared(d, volume) {
			return l.moveShared(ctx, d, v)
		}
		req, err := l.request(ctx, d, v)
		if err != nil {
			return err
		}
		status, body, err := l.cfg.Relay.Do(ctx, req)
		return l.heard(ctx, d, v, status, body, err)
	})
}

func movesShared(d api.Drain, v api.Volume) bool {
	return d.Request().MovesShared() && len(v.Attachments) > 1
}

// moveShared begins the move of a volume of several instances. A repeated call finds the same
// move, unless that has completed and the volume is back in the pool.
func (l *Loop) moveShared(ctx context.Context, d api.Drain, v api.DrainVolume) error {
	for n := 0; ; n++ {
		m, err := l.cfg.MoveShared(ctx, store.Call{Who: "drain " + d.ID, Key: taskID(d.ID, v.VolumeID, n)}, v.VolumeID, d.Request().SharedTarget())
		if err != nil {
			return l.refused(ctx, d, v, api.AsError(err))
		}
		if m, err = l.cfg.Migrations.Get(ctx, m.ID, store.Viewer{}); err != nil {
			return err
		}
		back, err := l.cameBack(ctx, d, m)
		switch {
		case err != nil:
			return err
		case back:
			continue
		}
		v.MigrationID, v.Host = m.ID, m.Host
		return l.settle(ctx, d, v, api.DrainVolumeMoving, nil)
	}
}

// waits reports whether a volume still counts as moving, but has no known migration.
func (l *Loop) waits(ctx context.Context, d api.Drain, v api.DrainVolume) (bool, error) {
	moving, _, err := l.cfg.Drains.NextVolumes(ctx, d.ID)
	return slices.ContainsFunc(moving, func(now api.DrainVolume) bool { return now.VolumeID == v.VolumeID && now.MigrationID == "" }), err
}

// background starts one call about a volume, unless a call is running or the volume must wait
// longer after a failure.
func (l *Loop) background(ctx context.Context, d api.Drain, v api.DrainVolume, do func(context.Context) error) {
	l.queue.Go(keyOf(d, v), func() error {
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("a volume of a drain is tried again", "drain", d.ID, "volume", v.VolumeName, "host", v.Host, "err", err)
		}
		return err
	})
}

func (l *Loop) request(ctx context.Context, d api.Drain, v api.DrainVolume) (relay.Request, error) {
	host, err := l.cfg.Placement.Host(ctx, v.Host)
	if err != nil {
		return relay.Request{}, err
	}
	key, err := l.nextAttempt(ctx, d, v)
	if err != nil {
		return relay.Request{}, err
	}
	return relay.Request{
		HostID: host.ID, HostName: host.Name, Who: "drain " + d.ID,
		Method: routes.MigrateVolume.Method, Path: routes.MigrateVolume.PathOf(v.VolumeID), Change: true, Key: key,
	}.With(d.Request().Target())
}

func (l *Loop) heard(ctx context.Context, d api.Drain, v api.DrainVolume, status int, body []byte, err error) error {
	if err != nil {
		return l.notAsked(ctx, d, v, err)
	}
	refused := relay.Refusal(status, body)
	if refused == nil {
		var err error
		if v.MigrationID, err = begun(body); err != nil {
			return l.settle(ctx, d, v, api.DrainVolumeFailed, api.Errorf(api.CodeInternal,
				"host %s took the request and did not say which migration it began (%v); `volferryctl migration list` shows it", v.Host, err))
		}
		return l.settle(ctx, d, v, api.DrainVolumeMoving, nil)
	}
	return l.refused(ctx, d, v, refused)
}

func (l *Loop) refused(ctx context.Context, d api.Drain, v api.DrainVolume, refused *api.Error) error {
	stands, err := l.stands(ctx, refused)
	switch {
	case err != nil:
		return err
	case stands:
		return l.settle(ctx, d, v, api.DrainVolumeSkipped, refused)
	case passes(refused):
		return l.putOff(ctx, d, v, refused)
	}
	leaves, later, err := l.leaving(ctx, d, v, refused)
	switch {
	case err != nil:
		return err
	case later:
		return l.putOff(ctx, d, v, refused)
	case leaves != "":
		v.MigrationID = leaves
		return l.settle(ctx, d, v, api.DrainVolumeMoving, nil)
	}
	return l.settle(ctx, d, v, api.DrainVolumeSkipped, refused)
}

// stands reports whether the reason of a refusal is a migration that does not end by itself.
func (l *Loop) stands(ctx context.Context, refused *api.Error) (bool, error) {
	named, _ := refused.Details["migration_id"].(string)
	if !passes(refused) || named == "" {
		return false, nil
	}
	m, err := l.cfg.Migrations.Get(ctx, named, store.Viewer{})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return m.State == api.MigrationNeedsOperator || m.State == api.MigrationOrphaned, err
}

// leaving returns the migration that takes the volume out of the pool for another requester, if
// that migration is the reason of the refusal. later means to try again: the migration has ended
// since or will leave the volume in the pool.
func (l *Loop) leaving(ctx context.Context, d api.Drain, v api.DrainVolume, refused *api.Error) (id string, later bool, err error) {
	named, _ := refused.Details["migration_id"].(string)
	if refused.Code != api.CodeMigrationActive || named == "" {
		return "", false, nil
	}
	m, err := l.cfg.Migrations.Get(ctx, named, store.Viewer{})
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return "", false, nil
	case err != nil:
		return "", false, err
	case m.VolumeID != v.VolumeID:
		return "", false, nil
	case m.State.Final():
		return "", true, nil
	case m.Dst.Pool == d.Pool: // it ends in this pool or at its src by itself
		return "", m.State != api.MigrationNeedsOperator && m.State != api.MigrationOrphaned, nil
	}
	return m.ID, false, nil
}

// notAsked handles a call without an answer. If certainly nothing was done, it delays the volume's
// move; otherwise it returns err.
func (l *Loop) notAsked(ctx context.Context, d api.Drain, v api.DrainVolume, err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeHypervisorUnavailable || e.Details["maybe_done"] == true {
		return err
	}
	return l.putOff(ctx, d, v, e)
}

// putOff makes a volume pending, and delays its next attempt.
func (l *Loop) putOff(ctx context.Context, d api.Drain, v api.DrainVolume, why *api.Error) error {
	l.queue.PutOff(keyOf(d, v))
	v.MigrationID = ""
	return l.settle(ctx, d, v, api.DrainVolumePending, why)
}

// askOp queries the op of a migration that the registry does not know. An op that ended without
// registering its migration has moved nothing.
func (l *Loop) askOp(ctx context.Context, d api.Drain, v api.DrainVolume) {
	l.background(ctx, d, v, func(ctx context.Context) error {
		o, err := l.op(ctx, d, v)
		if err != nil {
			return err
		}
		return l.opEnded(ctx, d, v, o)
	})
}

// opEnded records the end of an op without a registered migration. An undone op was refused after
// it had waited for another op of its instance. A done op's migration is registered by then.
func (l *Loop) opEnded(ctx context.Context, d api.Drain, v api.DrainVolume, o api.Op) error {
	why := o.Error
	if why == nil {
		why = api.Errorf(api.CodeConflict, "operation %s on host %s ended as %s", o.ID, v.Host, o.State)
	}
	switch o.State {
	case api.OpUndone:
		return l.refused(ctx, d, v, why)
	case api.OpNeedsOperator:
		return l.settle(ctx, d, v, api.DrainVolumeFailed, why)
	}
	return nil
}
