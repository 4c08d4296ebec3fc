// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"

	"github.com/volferry/volferry/internal/api"
)

// Listen registers a listener, and passes it the last epoch of an earlier process, so that ops
// with an older epoch check whether they still own their objects. Call it before any op continues.
func (u *Uplink) Listen(l Listener) {
	u.mu.Lock()
	u.listeners = append(u.listeners, l)
	u.mu.Unlock()
	if f := u.Fence(); f != nil {
		l.Epoch(f.Epoch)
		return
	}
	l.Epoch(u.state.Epoch())
}

func (u *Uplink) listening() []Listener {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.listeners
}

func (u *Uplink) announceEpoch(epoch int64) {
	for _, l := range u.listening() {
		l.Epoch(epoch)
	}
}

func (u *Uplink) resume(ctx context.Context) error {
	if err := u.cfg.Ops.Resume(ctx); err != nil {
		return err
	}
	for _, l := range u.listening() {
		if err := l.Resumed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ReportMigrations makes reports include the host's open migrations. Until it is called, the
// registry keeps its earlier data of them.
func (u *Uplink) ReportMigrations(open func(ctx context.Context) ([]api.Migration, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.migrations = open
}

// RemarkInstances makes reports include the text of remark, if any, about an instance that does
// not differ from the registry's view.
func (u *Uplink) RemarkInstances(remark func(instanceID string) string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remarks = remark
}

func (u *Uplink) remark(instanceID string) string {
	u.mu.Lock()
	of := u.remarks
	u.mu.Unlock()
	if of == nil {
		return ""
	}
	return of(instanceID)
}

var errNoMigrations = errors.New("nobody has said yet which migrations are open")

func (u *Uplink) openMigrations(ctx context.Context) ([]api.Migration, error) {
	u.mu.Lock()
	open := u.migrations
	u.mu.Unlock()
	if open == nil {
		return nil, errNoMigrations
	}
	return open(ctx)
}

func (u *Uplink) publish(host api.Host, err error) {
	if err == nil {
		u.register(host.Name)
	}
	u.mu.Lock()
	wasUp, first := u.upLocked(), !u.tried
	if wasUp && reportLater(err) {
		u.mu.Unlock()
		u.cfg.Log.Debug("the registry takes a report later", "err", err)
		return // the registry answers, and accepts other requests
	}
	if u.err, u.tried = err, true; err == nil {
		u.host = host
	}
	u.mu.Unlock()
	switch {
	case err == nil && !wasUp:
		u.cfg.Log.Info("the registry answers", "epoch", host.Epoch)
		for _, l := range u.listening() {
			l.RegistryUp()
		}
	case err != nil && (wasUp || first):
		u.cfg.Log.Warn("the registry does not take what this host reports", "err", err)
	}
}
