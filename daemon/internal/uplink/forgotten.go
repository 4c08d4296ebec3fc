// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Forgotten clears the guard of a domain without a root volume whose instance the registry
// has forgotten. Nobody else would clear it, and the domain is its owner's again.
//
// It does so while no op of the instance is at work, and asks the registry in that time. If
// the domain has another guard too, all guards stay: it may be another host's instance,
// about which the registry tells this host just as little.
func (u *Uplink) Forgotten(ctx context.Context, id string) {
	if u.Err() != nil || u.Fence() != nil {
		return // nobody can tell; the next report looks again
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

// clearForgotten looks at every guard of a domain that the registry does not name as
// an instance: forgotten at the registry itself, or while this daemon was away.
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
