// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CheckReach refuses a volume if its bytes or its instance are on another host. An unattached
// volume in a shared pool can be moved by each host that has the pool.
func (f *Finder) CheckReach(ctx context.Context, vol api.Volume, host move.Host) error {
	owner := vol.Host
	if !vol.Unheld() {
		owner = vol.Attachments[0].Host
	}
	if owner == "" || owner == host.ID || owner == host.Name {
		return nil
	}
	elsewhere := api.Errorf(api.CodeNotYourHost, "volume %s is on host %s; run this there", vol.Name, owner)
	if !vol.Unheld() || vol.Location.Pool == "" {
		return elsewhere
	}
	pools, err := f.hv.Pools(ctx)
	if err != nil {
		return request.NoHypervisor(err)
	}
	i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return p.Name == vol.Location.Pool })
	if i < 0 || (!location.Shared(pools[i].Type) && !slices.Contains(f.sharedPools, pools[i].Name)) {
		return elsewhere
	}
	return nil
}
