// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// wakeAll has every host wake its instances, one after the other. One that waits for
// an operator holds up no other.
func (l *Loop) wakeAll(ctx context.Context, p *store.Pause) error {
	begun := map[string]bool{} // by host
	for _, g := range p.Instances {
		if g.State == store.PauseRestored || g.Error != nil || begun[g.Host.ID] {
			continue
		}
		begun[g.Host.ID] = !g.Host.Fenced
		if err := l.wake(ctx, p, g); err != nil {
			return err
		}
	}
	return nil
}

// wake brings one instance a step on.
func (l *Loop) wake(ctx context.Context, p *store.Pause, g store.PauseInstance) error {
	key := line{p.Migration.ID, g.ID}
	if l.calls.Busy(key) {
		return nil // it may be just about to be saved
	}
	if g.Lost && !g.Attached {
		// It cannot have the volume any more: nothing is left to wait for.
		g.State = store.PauseRestored
		return l.set(ctx, p, g)
	}
	if g.State == store.PausePending {
		settled, err := l.settleSave(ctx, p, g)
		if settled || err != nil {
			return err
		}
	}
	switch {
	case g.Host.Fenced && g.Lost:
		return nil
	case g.Host.Fenced:
		g.Lost = true
		return l.set(ctx, p, g)
	case g.State == store.PausePending:
		l.background(ctx, key, func(ctx context.Context) error { return l.awaitSave(ctx, p, g) })
	default:
		l.background(ctx, key, func(ctx context.Context) error { return l.wakeOne(ctx, p, g) })
	}
	return nil
}

// settleSave restores at once an instance that was never saved, and says so: no call
// to save it was made, or it can be taken back, or was refused.
func (l *Loop) settleSave(ctx context.Context, p *store.Pause, g store.PauseInstance) (bool, error) {
	begun, err := l.saveBegun(ctx, p, g, g.SaveAttempt)
	if begun || err != nil {
		return false, err
	}
	g.State = store.PauseRestored
	return true, l.set(ctx, p, g)
}

// saveBegun says whether a host may have begun to save an instance when it was asked
// to for one of so many times after the first: a call that fails for the moment may
// have been begun all the same, whatever the next one is answered.
func (l *Loop) saveBegun(ctx context.Context, p *store.Pause, g store.PauseInstance, attempts int) (bool, error) {
	for g.SaveAttempt = 0; g.SaveAttempt <= attempts; g.SaveAttempt++ {
		if begun, err := l.begun(ctx, saveRequest(p, g).key); begun || err != nil {
			return begun, err
		}
	}
	return false, nil
}

// begun says whether a host may have begun what a call asked for. One that it did not
// fetch is withdrawn.
func (l *Loop) begun(ctx context.Context, key string) (bool, error) {
	task, answer, err := l.cfg.Store.Task(ctx, key)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return false, nil
	case err != nil:
		return false, err
	case answer != nil:
		return answer.Status < http.StatusBadRequest || answer.Status >= http.StatusInternalServerError, nil
	case task.State == api.TaskTaken:
		return true, nil
	}
	withdrawn, err := l.cfg.Store.WithdrawTask(ctx, call, key)
	return !withdrawn, err
}

// awaitSave waits until it is known whether an instance was saved: only then is it
// woken, so that its save cannot come after that.
func (l *Loop) awaitSave(ctx context.Context, p *store.Pause, g store.PauseInstance) error {
	v, err := l.ask(ctx, saveRequest(p, g))
	if err != nil {
		return err
	}
	g.State = store.PauseSaved
	if v.untouched {
		before, err := l.saveBegun(ctx, p, g, g.SaveAttempt-1)
		if err != nil {
			return err
		}
		if !before {
			g.State = store.PauseRestored
		}
	}
	return l.set(ctx, p, g)
}

func (l *Loop) wakeOne(ctx context.Context, p *store.Pause, g store.PauseInstance) error {
	v, err := l.ask(ctx, wakeRequest(p, g))
	switch {
	case err != nil:
		return err
	case v.failed == nil:
		g.State = store.PauseRestored
		return l.set(ctx, p, g)
	case v.again || g.Lost:
		g.Attempt++
		if err := l.set(ctx, p, g); err != nil {
			return err
		}
		return v.failed // in its turn
	}
	g.Error = about(v.failed, "cannot wake instance %s on host %s", g.Name, g.Host.Name)
	return l.set(ctx, p, g)
}

// wakeRequest wakes an instance with the volume where it is: at dst after the commit
// point, and at src without it.
func wakeRequest(p *store.Pause, g store.PauseInstance) request {
	m := p.Migration
	verb, at := "back", m.Src
	if p.Phase == store.PauseRestoring || m.State == api.MigrationCompleted {
		verb, at = "restore", m.Dst
	}
	return request{
		host: g.Host, key: key(m.ID, verb, g.ID, g.Attempt), path: "/v1/instances/" + g.ID + "/restore",
		body: api.InstanceRestore{MigrationID: m.ID, VolumeID: m.VolumeID, Location: at},
	}
}
