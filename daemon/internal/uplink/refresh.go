// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// refreshView takes on the view that was read after the report before, and reads a new
// one if the registry has moved on. The caller holds reporting and has just been
// told by the registry that its epoch is right.
func (u *Uplink) refreshView(ctx context.Context) {
	if c := u.pendingView; c != nil {
		u.pendingView = nil
		if err := u.takeOn(*c); err != nil {
			u.noteViewErr(ctx, fmt.Errorf("keep what the registry says: %w", err))
			return
		}
	}
	u.reconsider(ctx)
	if !u.due() {
		return
	}
	u.mu.Lock()
	c := pendingView{taken: u.taken, at: time.Now()}
	first := u.view.ReadAt.IsZero()
	u.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := u.read(bounded, &c.view); err != nil {
		u.noteViewErr(ctx, err)
		return
	}
	u.pendingView = &c
	if first {
		u.Changed() // the next report makes it count
	}
}

// noteViewErr keeps why there is no newer view, and logs it once. The registry answers reports all
// the while: only the age of the view would show that something is wrong.
func (u *Uplink) noteViewErr(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the daemon ends, or the caller that asked for a report does
	}
	u.mu.Lock()
	changed := u.viewErr == nil || u.viewErr.Error() != err.Error()
	u.viewErr = err
	u.mu.Unlock()
	if changed {
		u.cfg.Log.Warn("this host remembers what the registry said before, and cannot take on what it says now", "err", err)
	}
}

// ViewChecks returns a check for a view that cannot be had; none if the view is what the registry
// says, or the next one is not due yet.
func (u *Uplink) ViewChecks() []api.Check {
	u.mu.Lock()
	err := u.viewErr
	u.mu.Unlock()
	if err == nil {
		return nil
	}
	check := api.Check{
		Name: "registry lists", Status: "warn", Message: err.Error(),
		Advice: "this host works on; what it shows while the registry is away is old, and so is what it compares its instances with: look at the load of the registry and of the network to it",
	}
	if _, age, known := u.View(); known {
		check.Message += fmt.Sprintf("; lists are as they were %s ago", age.Round(time.Second))
	}
	return []api.Check{check}
}

// viewEvery bounds how often a view is read: on a large site the registry always
// has something new, most of it of other hosts.
const viewEvery = 15 * time.Second

// due reports whether a view is to be read: the registry has more to say than the
// one there is, which has had its time.
func (u *Uplink) due() bool {
	now := u.state.current().Mark
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.view.Mark
	if !u.view.ReadAt.IsZero() && seen != nil && now != nil && *seen == *now {
		u.currentAt, u.viewErr = time.Now(), nil
		return false
	}
	return u.currentAt.IsZero() || time.Since(u.currentAt) >= viewEvery
}

// takeOn makes a view the one that counts, durably.
func (u *Uplink) takeOn(c pendingView) error {
	if err := writeJSON(u.state.viewPath(), c.view); err != nil {
		return err
	}
	u.mu.Lock()
	u.view, u.currentAt, u.viewErr = c.view, c.at, nil
	u.mu.Unlock()
	// Grants of before are in the view, or were released.
	return u.state.update(func(m *savedState) {
		m.Granted = slices.DeleteFunc(m.Granted, func(g grant) bool { return g.taken <= c.taken })
	})
}

// read fills a view with what the registry says now.
func (u *Uplink) read(ctx context.Context, v *View) error {
	v.Mark, v.ReadAt = u.state.current().Mark, time.Now().UTC()
	r := u.cfg.Registry
	for _, fill := range []func() error{
		func() (err error) { v.Hosts, err = r.Hosts(ctx); return },
		func() (err error) { v.Pools, err = r.Pools(ctx); return },
		func() (err error) { v.Types, err = r.Types(ctx); return },
		func() (err error) { v.Policies, err = r.Policies(ctx); return },
		func() (err error) { v.Volumes, err = r.Volumes(ctx); return },
		func() (err error) { v.Instances, err = r.Instances(ctx); return },
		func() (err error) { v.Attachments, err = r.Attachments(ctx, "", ""); return },
	} {
		if err := fill(); err != nil {
			return fmt.Errorf("read what the registry says: %w", err)
		}
	}
	return nil
}
