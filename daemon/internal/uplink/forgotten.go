// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Forgotten clears the guard of a domain without a root volume after the registry has forgotten
// its instance: the operator may start the domain again.
//
// It holds the instance's key, so that no op of the instance runs. If the domain has another guard
// too, Forgotten clears none: the instance may be on another host now, and the registry hides such
// an instance like a forgotten one.
func (u *Uplink) Forgotten(ctx context.Context, id string) {
	if u.Err() != nil || u.Fence() != nil {
		return // unknown; the next report looks again
	}
	u.cfg.Ops.TryLock([]string{request.PowerKey(id)}, func() {
		guards, err := u.cfg.Guards.Of(id)
		if err != nil || len(guards) != 1 || guards[0].Owner != guard.OwnerRoot {
			return
		}
		instances, err := u.cfg.Registry.Instances(ctx)
		if err != nil || hasInstance(instances, id) {
			return
		}
		if err := u.cfg.Guards.Clear(id, guard.OwnerRoot); err != nil {
			u.cfg.Log.Warn("the guard of an instance that was forgotten cannot be cleared", "instance", id, "err", err)
			return
		}
		u.cfg.Log.Info("the guard of an instance that was forgotten is cleared: its domain can be started", "instance", id)
	})
}

// clearForgotten calls Forgotten for every guarded domain that is not in named: the registry may
// have forgotten its instance, perhaps while this daemon was down.
func (u *Uplink) clearForgotten(ctx context.Context, named []api.Instance) {
	guarded, err := u.cfg.Guards.List()
	if err != nil {
		u.cfg.Log.Warn("the guards cannot be looked at", "err", err)
		return
	}
	for id := range guarded {
		if !hasInstance(named, id) {
			u.Forgotten(ctx, id)
		}
	}
}

func hasInstance(all []api.Instance, id string) bool {
	return slices.ContainsFunc(all, func(i api.Instance) bool { return i.ID == id })
}
