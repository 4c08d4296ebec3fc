// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// refreshView makes pendingView the current view. If the registry has changed since that read,
// refreshView reads another pendingView. The caller holds reporting, and the registry has just
// confirmed the host's epoch.
func (u *Uplink) refreshView(ctx context.Context) {
	if c := u.pendingView; c != nil {
		u.pendingView = nil
		if err := u.takeOn(*c); err != nil {
			u.noteViewErr(ctx, fmt.Errorf("keep what the registry says: %w", err))
			return
		}
	}
	u.losses.reconsider(ctx)
	if !u.due() {
		return
	}
	c := pendingView{taken: u.grants(), at: time.Now()}
	first := u.readAt().IsZero()
	bounded, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := u.read(bounded, &c.view); err != nil {
		u.noteViewErr(ctx, err)
		return
	}
	u.pendingView = &c
	if first {
		u.Changed() // the next report confirms it
	}
}

// noteViewErr stores why there is no newer view, and logs it once. Reports are still answered, so
// otherwise only the view's age would show the fault.
func (m *Memory) noteViewErr(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the daemon ends, or the report's caller has gone
	}
	m.mu.Lock()
	changed := errChanged(m.viewErr, err)
	m.viewErr = err
	m.mu.Unlock()
	if changed {
		m.log.Warn("this host remembers what the registry said before, and cannot take on what it says now", "err", err)
	}
}

// ViewChecks returns a warning for the doctor if the last attempt to read a view failed, and
// otherwise nothing.
func (m *Memory) ViewChecks() []api.Check {
	m.mu.Lock()
	err := m.viewErr
	m.mu.Unlock()
	if err == nil {
		return nil
	}
	check := api.Check{
		Name: "registry lists", Status: "warn", Message: err.Error(),
		Advice: "this host works on; what it shows while the registry is away is old, and so is what it compares its instances with: look at the load of the registry and of the network to it",
	}
	if _, age, known := m.View(); known {
		check.Message += fmt.Sprintf("; lists are as they were %s ago", age.Round(time.Second))
	}
	return []api.Check{check}
}

// viewEvery is the shortest interval between reads of a view: a large registry changes constantly,
// mostly for other hosts.
const viewEvery = 15 * time.Second

func (m *Memory) due() bool {
	now := m.state.current().Mark
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.view.Mark
	if !m.view.ReadAt.IsZero() && seen != nil && now != nil && *seen == *now {
		m.currentAt, m.viewErr = time.Now(), nil
		return false
	}
	return m.currentAt.IsZero() || time.Since(m.currentAt) >= viewEvery
}

func (m *Memory) takeOn(c pendingView) error {
	if err := writeJSON(m.state.viewPath(), c.view); err != nil {
		return err
	}
	m.mu.Lock()
	m.view, m.currentAt, m.viewErr = c.view, c.at, nil
	m.mu.Unlock()
	// The view contains the grants before its read, unless they were released.
	return m.state.update(func(s *savedState) {
		s.Granted = slices.DeleteFunc(s.Granted, func(g grant) bool { return g.taken <= c.taken })
	})
}

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
