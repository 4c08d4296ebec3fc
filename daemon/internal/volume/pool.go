// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// choosePool returns the caller's pool if it can hold the volume. Without a caller's pool it
// returns the first capable pool with enough space. It tries the pools in the order of libvirt's
// free space, and reads no more directories than necessary: a silent file server would block it.
func choosePool(pools []hv.PoolInfo, typ api.VolumeType, in api.VolumeCreate, ofDir func(string) (int64, error)) (hv.PoolInfo, error) {
	if in.Pool != "" {
		pool, err := namedPool(pools, typ, in)
		if err != nil {
			return pool, err
		}
		return pool, checkRoom(pool, in, ofDir)
	}
	capable := slices.DeleteFunc(slices.Clone(pools), func(p hv.PoolInfo) bool {
		return !p.Active || p.Path == "" || !canHold(p, in.Format) || !allows(typ, p) || (typ.Multiattach && !location.OpenByMany(p.Type))
	})
	if len(capable) == 0 {
		return hv.PoolInfo{}, api.Errorf(api.CodeNoCapablePool, "no active pool of this host can hold a %s volume of type %s; `volferryctl pool list` and `%s` say why",
			in.Format, typ.Name, shell.Line("volferryctl", "type", "show", typ.Name))
	}
	slices.SortFunc(capable, func(a, b hv.PoolInfo) int {
		return cmp.Or(cmp.Compare(b.FreeBytes, a.FreeBytes), cmp.Compare(a.Name, b.Name))
	})
	var refused error
	for _, p := range capable {
		err := checkRoom(p, in, ofDir)
		if err == nil {
			return p, nil
		}
		refused = cmp.Or(refused, err)
	}
	return hv.PoolInfo{}, refused
}

func namedPool(pools []hv.PoolInfo, typ api.VolumeType, in api.VolumeCreate) (hv.PoolInfo, error) {
	pool, err := location.Pool(pools, in.Pool)
	switch {
	case err != nil:
		return pool, err
	case !canHold(pool, api.FormatRaw):
		return pool, api.Errorf(api.CodeInvalidArgument, "pool %s is of type %s, in which libvirt cannot create volumes", pool.Name, pool.Type)
	case !canHold(pool, in.Format):
		return pool, api.Errorf(api.CodeInvalidArgument, "pool %s holds block devices, on which volumes are made raw; say --format raw", pool.Name)
	case typ.Multiattach && !location.OpenByMany(pool.Type):
		return pool, api.Errorf(api.CodeNoCapablePool, "pool %s is of type %s, whose volumes cannot be open in several guests, and type %s is multiattach", pool.Name, pool.Type, typ.Name)
	case !allows(typ, pool):
		return pool, api.Errorf(api.CodePolicyDenied, "a volume of type %s may not be in pool %s: its type allows the pools %q only", typ.Name, pool.Name, typ.Pools)
	}
	return pool, nil
}

func canHold(p hv.PoolInfo, format api.Format) bool {
	if location.HoldsFiles(p) {
		return true
	}
	return format == api.FormatRaw && slices.Contains([]string{"logical", "zfs", hv.ConnectorPool}, p.Type)
}

func allows(typ api.VolumeType, p hv.PoolInfo) bool {
	return len(typ.Pools) == 0 || slices.Contains(typ.Pools, p.Name)
}

// checkRoom refuses a pool without space for the whole volume: a guest that fills its disk must
// not find the pool full.
func checkRoom(p hv.PoolInfo, in api.VolumeCreate, ofDir func(string) (int64, error)) error {
	free, err := location.FreeBytes(p, ofDir)
	if err != nil {
		return err
	}
	if free >= in.SizeBytes {
		return nil
	}
	return api.Errorf(api.CodeNoSpace, "pool %s has %s free and volume %s may grow to %s", p.Name, humanize.ExactBytes(free), in.Name, humanize.ExactBytes(in.SizeBytes)).
		With("free_bytes", free).With("needed_bytes", in.SizeBytes)
}
