// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

const poolLow = 1 << 30

// Pools checks the storage pools.
func (d *Doctor) Pools(ctx context.Context) []api.Check {
	pools, err := d.HV.Pools(ctx)
	if err != nil {
		return nil // libvirt has its own check
	}
	if len(pools) == 0 {
		return []api.Check{{
			Name: "pools", Status: "warn", Message: "this host has no storage pool", Advice: "virsh pool-define-as, pool-start; or list directories in allowed_paths",
		}}
	}
	out := append(d.SharedPools(pools), openPools(pools)...)
	for _, p := range pools {
		if !p.Active && p.Type == hv.ConnectorPool {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "fail", Message: "the pool cannot be used: " + p.Problem,
				Advice: "fix this problem; `journalctl -u volferryd-connectors` and `volferryd connector-test` may show more",
			})
			continue
		}
		if !p.Active {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: "the pool is not active", Advice: shell.Line("virsh", "pool-start", "--", p.Name),
			})
			continue
		}
		if p.Problem != "" {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: p.Problem,
				Advice: "find the cause of this; the pool can be used",
			})
		}
		if p.NoCreate {
			out = append(out, ok("pool "+p.Name, p.Type+", for existing volumes: Volferry creates none in it"))
			continue
		}
		free, err := location.FreeBytes(p, d.Storage.FreeBytes)
		if err != nil {
			out = append(out, api.Check{Name: "pool " + p.Name, Status: "warn", Message: err.Error(), Advice: "check the filesystem of " + p.Path})
			continue
		}
		has := ok("pool "+p.Name, fmt.Sprintf("%s, %s free", p.Type, humanize.Bytes(free)))
		if free < poolLow {
			has.Status, has.Advice = "warn", "too little space for most volumes: free some space, or move its volumes to another pool ("+shell.Line("volferryctl", "pool", "drain", p.Name, "--to", "POOL")+")"
		}
		out = append(out, has)
	}
	return out
}

// SharedPools reports unknown names in shared_pools: a pool with a mistyped name is not treated as
// shared.
func (d *Doctor) SharedPools(pools []hv.PoolInfo) []api.Check {
	out := []api.Check{}
	for _, name := range d.Cfg.SharedPools {
		if !slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name }) {
			out = append(out, api.Check{
				Name: "pool " + name, Status: "warn", Message: "shared_pools lists the pool, and libvirt has no such pool",
				Advice: "define the pool (virsh pool-define), or remove it from shared_pools",
			})
		}
	}
	return out
}

// openPools reports active pools of files in directories that other users than root may write:
// such a user could replace a volume's file.
func openPools(pools []hv.PoolInfo) []api.Check {
	var out []api.Check
	for _, p := range pools {
		if !p.Active || !location.HoldsFiles(p) {
			continue
		}
		if who := location.OpenTo(p.Path); who != "" {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn",
				Message: fmt.Sprintf("%s may write in its directory %s, or rename it, and so replace the file of a volume", who, p.Path),
				Advice:  "allow only root to write there: " + shell.Line("chown", "root:root", "--", p.Path) + " and " + shell.Line("chmod", "go-w", "--", p.Path) + ", and do the same for the directories above it",
			})
		}
	}
	return out
}
