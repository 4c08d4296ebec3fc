// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// poolsGone reports this host's volumes in pools that libvirt no longer has. The daemon's copy of
// the registry may be half a minute old, so poolsGone also asks the registry.
func (d *Doctor) poolsGone(ctx context.Context, volumes []api.Volume) []api.Check {
	pools, err := d.HV.Pools(ctx)
	if err != nil {
		return nil // libvirt has its own check
	}
	names := map[string][]string{}
	for _, vol := range volumes {
		pool := vol.Location.Pool
		there := slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == pool })
		if pool != "" && !there && d.stillIn(ctx, &vol) {
			names[pool] = append(names[pool], vol.Name)
		}
	}
	out := []api.Check{}
	for _, pool := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[pool])
		out = append(out, api.Check{
			Name: "pool " + pool, Status: "fail",
			Message: fmt.Sprintf("this host has no such pool any more, and the registry has %s of this host in it: %s", humanize.Count(len(names[pool]), "volume"), strings.Join(names[pool], ", ")),
			Advice: "define and start the pool again (virsh pool-define, " + shell.Line("virsh", "pool-start", "--", pool) + "), or list it in connector_pools if it is a connector's pool; " +
				"if its storage is lost for good, detach and forget each of its volumes (" + shell.Line("volferryctl", "volume", "forget", names[pool][0]) + ")",
		})
	}
	return out
}

// stillIn reports whether the registry still has a volume in the same pool and host. While the
// registry does not answer, it returns true.
func (d *Doctor) stillIn(ctx context.Context, known *api.Volume) bool {
	now, err := d.Volume(ctx, known.ID)
	if err != nil {
		return api.CodeOf(err) != api.CodeNotFound
	}
	return now.Location.Pool == known.Location.Pool && now.Host == known.Host
}
