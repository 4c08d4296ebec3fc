// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Admit returns nil if new work may begin on this host. Otherwise it returns an error that
// describes the host's fence.
func (u *Uplink) Admit() error {
	f := u.Fence()
	if f == nil && u.halted.Load() {
		f = &Fence{Epoch: u.state.Epoch()}
	}
	if f == nil {
		return nil
	}
	why := "it is about to let go of what it lost"
	if err := u.Err(); err != nil {
		why = "what it lost is not known or not stopped yet: " + err.Error()
	}
	return api.Errorf(api.CodeStaleEpoch, "this host was fenced (epoch %d), so nothing is begun on it until it has come back; %s", f.Epoch, why).
		With("epoch", f.Epoch)
}

// refused handles the registry's error for a request with this epoch. If the error reports a fence
// of this host, refused first stores the fence. sure is true if the request certainly had this
// epoch: a change may have the older epoch of its op.
func (u *Uplink) refused(epoch int64, sure bool, err error) error {
	now, known := epochIn(err)
	switch {
	case reportFirst(err):
		u.Changed()
		return err
	case api.CodeOf(err) != api.CodeStaleEpoch || !known:
		return err
	case now == epoch && !sure:
		u.Changed() // the report determines whether the host was fenced
		return err
	case now <= epoch:
		// A host adopts an epoch only when its fence is over. So the registry's attachments are
		// older than that, and because of them the host would stop guests that may run.
		return api.Errorf(api.CodeStaleEpoch, "the registry has this host in epoch %d as fenced or behind, and this host was told of epoch %d: its database is older than that, from a backup it seems; this host does nothing about it until an operator has compared the two", now, epoch).
			With("epoch", now)
	}
	u.announceEpoch(now)
	// The fence takes effect even if it cannot be stored: a later process gets it in the answer to
	// its first report.
	keepErr := u.state.updateAnyway(func(m *savedState) {
		if now > m.Epoch {
			m.Fence = &Fence{Epoch: now}
		}
	})
	u.cfg.Log.Warn("this host was fenced", "epoch", epoch, "now", now)
	u.Changed()
	return errors.Join(err, keepErr)
}

// reportFirst reports whether the registry refused a change because it first needs a report of
// this host: since the registry's start the host has sent no report, or none with a new pool.
func reportFirst(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Details[api.DetailReportFirst] == true
}

func epochIn(err error) (int64, bool) {
	var e *api.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	switch n := e.Details["epoch"].(type) {
	case float64: // from JSON
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// comeBack brings a fenced host back and resumes its ops. After a failure the next call repeats
// every part (DESIGN.md).
func (u *Uplink) comeBack(ctx context.Context) error {
	if f := u.Fence(); f != nil {
		if err := u.rejoin(ctx, f); err != nil {
			return err
		}
	}
	if !u.halted.Load() {
		return nil
	}
	if err := u.resume(ctx); err != nil {
		return fmt.Errorf("resume operations: %w", err)
	}
	u.halted.Store(false)
	return nil
}

// rejoin stops the instances with lost disks, and then reports to the registry that the host has
// released its lost volumes. It does not wait long until the ops have halted, which may take
// hours.
func (u *Uplink) rejoin(ctx context.Context, f *Fence) error {
	if err := u.reporting.lock(ctx); err != nil { // no report of the old epoch may overtake the rejoin
		return err
	}
	defer u.reporting.unlock()
	u.halted.Store(true)
	halt := u.halt(ctx)
	u.pendingView = nil // it may have been read after the fence
	if err := u.losses.letGo(ctx); err != nil {
		return err
	}
	if err := u.whenHalted(ctx, halt); err != nil {
		return err
	}
	// An operation may have connected disks before it was halted.
	if err := u.losses.letGo(ctx); err != nil {
		return err
	}
	host, err := u.cfg.Registry.RejoinHost(ctx, u.cfg.HostID, api.HostRejoin{Epoch: f.Epoch})
	if err != nil {
		return u.rejoinRefused(f, err)
	}
	// The host may have lost more between the previous letGo and the rejoin. From now on it loses
	// nothing without another fence.
	if err := u.losses.letGo(ctx); err != nil {
		return err
	}
	if err := u.state.update(func(m *savedState) { m.Epoch, m.Fence = f.Epoch, nil }); err != nil {
		return err
	}
	u.cfg.Log.Warn("this host is back", "epoch", f.Epoch, "disks_lost", len(u.losses.Lost()))
	u.publish(host, nil)
	return nil
}

// halt makes the runner halt the ops. All calls during one halt return the same channel, which
// receives the result.
func (u *Uplink) halt(ctx context.Context) <-chan error {
	if u.halting == nil {
		halting := make(chan error, 1)
		u.halting = halting
		go func() {
			for _, l := range u.listening() {
				l.BeforeHalt(ctx)
			}
			halting <- u.cfg.Ops.Halt(ctx)
		}()
	}
	return u.halting
}

// haltTimeout is how long one attempt to rejoin waits until the ops have halted. The next attempt
// first looks for lost volumes again.
const haltTimeout = 10 * time.Second

func (u *Uplink) whenHalted(ctx context.Context, halt <-chan error) error {
	bound := time.NewTimer(haltTimeout)
	defer bound.Stop()
	select {
	case err := <-halt:
		u.halting = nil
		if err != nil {
			return fmt.Errorf("halt operations: %w", err)
		}
		return nil
	case <-bound.C:
		return errors.New("an operation has not come to a halt yet; what this host lost is stopped, and it comes back when the operation has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u *Uplink) rejoinRefused(f *Fence, err error) error {
	now, known := epochIn(err)
	if api.CodeOf(err) != api.CodeStaleEpoch || !known || now <= f.Epoch {
		return fmt.Errorf("rejoin: %w", err)
	}
	if err := u.state.update(func(m *savedState) { m.Fence = &Fence{Epoch: now} }); err != nil {
		return err
	}
	return err
}
