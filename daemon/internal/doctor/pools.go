// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
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
				Name: "pool " + p.Name, Status: "fail", Message: "it cannot be used: " + p.Problem,
				Advice: "mend that; `journalctl -u volferryd-connectors` and `volferryd connector-test` may say more",
			})
			continue
		}
		if !p.Active {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: "it is not active", Advice: api.ShellLine("virsh", "pool-start", "--", p.Name),
			})
			continue
		}
		if p.Problem != "" {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn", Message: p.Problem,
				Advice: "look where that comes from; the pool can be used",
			})
		}
		if p.NoCreate {
			out = append(out, ok("pool "+p.Name, p.Type+", of volumes that are there already"))
			continue
		}
		free, err := location.FreeBytes(p, d.Storage.FreeBytes)
		if err != nil {
			out = append(out, api.Check{Name: "pool " + p.Name, Status: "warn", Message: err.Error(), Advice: "look at the filesystem of " + p.Path})
			continue
		}
		has := ok("pool "+p.Name, fmt.Sprintf("%s, %s free", p.Type, api.Bytes(free)))
		if free < poolLow {
			has.Status, has.Advice = "warn", "hardly a volume has room there; make room, or move out what volumes it has ("+api.ShellLine("volferryctl", "pool", "drain", p.Name, "--to", "POOL")+")"
		}
		out = append(out, has)
	}
	return out
}

// SharedPools reports unknown names in shared_pools: a mistyped pool is not treated as shared.
func (d *Doctor) SharedPools(pools []hv.PoolInfo) []api.Check {
	out := []api.Check{}
	for _, name := range d.Cfg.SharedPools {
		if !slices.ContainsFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name }) {
			out = append(out, api.Check{
				Name: "pool " + name, Status: "warn", Message: "shared_pools names it, and libvirt has no such pool",
				Advice: "virsh pool-define it, or take it out of shared_pools",
			})
		}
	}
	return out
}

// openPools reports active pools of files in directories that other users than root may write:
// they could replace a volume's file.
func openPools(pools []hv.PoolInfo) []api.Check {
	var out []api.Check
	for _, p := range pools {
		if !p.Active || !location.HoldsFiles(p) {
			continue
		}
		if who := location.OpenTo(p.Path); who != "" {
			out = append(out, api.Check{
				Name: "pool " + p.Name, Status: "warn",
				Message: fmt.Sprintf("%s may write in its directory %s, or rename it, and so put another file in the place of a volume", who, p.Path),
				Advice:  "let root alone write there: " + api.ShellLine("chown", "root:root", "--", p.Path) + " and " + api.ShellLine("chmod", "go-w", "--", p.Path) + ", and so for the directories above it",
			})
		}
	}
	return out
}
