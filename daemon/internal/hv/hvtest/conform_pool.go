// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var poolTests = map[string]func(*testing.T, *bench){
	"PoolVolumesAreMadeFoundAndDeleted": testPoolVolumes,
	"PoolsAreListed":                    testPools,
}

func testPoolVolumes(t *testing.T, b *bench) {
	ctx, pool := t.Context(), b.Pool(t)
	for _, format := range []string{Raw, Qcow2} {
		name := "vol-" + uuid.NewString()
		if _, err := b.hv.LookupVolume(ctx, pool, name); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("LookupVolume of nothing = %v, want ErrNotFound", err)
		}
		if rounded, err := b.hv.RoundedBytes(ctx, pool, diskBytes); rounded != diskBytes || err != nil {
			t.Errorf("RoundedBytes in a pool of files = %d, %v, want %d", rounded, err, diskBytes)
		}
		made, err := b.hv.CreateVolume(ctx, pool, name, format, diskBytes, nil)
		ok(t, err)
		if made.Name != name || made.Format != format || made.CapacityBytes != diskBytes || made.Block || made.Path == "" {
			t.Errorf("CreateVolume = %+v", made)
		}
		found, err := b.hv.LookupVolume(ctx, pool, name)
		ok(t, err)
		if diff := cmp.Diff(made, found); diff != "" {
			t.Errorf("LookupVolume (-made +found):\n%s", diff)
		}
		if at, err := b.hv.VolumeAt(ctx, made.Path); at != pool || err != nil {
			t.Errorf("VolumeAt(%s) = %s, %v, want %s", made.Path, at, err, pool)
		}
		if err := b.hv.ExtendVolume(ctx, pool, name, 2*diskBytes); !errors.Is(err, hv.ErrUnsupported) {
			t.Errorf("ExtendVolume in a pool of files = %v, want ErrUnsupported", err)
		}
		if _, err := b.hv.CreateVolume(ctx, pool, name, format, diskBytes, nil); !errors.Is(err, hv.ErrExists) {
			t.Errorf("CreateVolume of an existing name = %v, want ErrExists", err)
		}
		b.CheckImage(t, hv.Image{Type: hv.SourceFile, Format: format, Path: made.Path}, 0, 0)
		for range 2 {
			ok(t, b.hv.DeleteVolume(ctx, pool, name))
		}
		if _, err := b.hv.LookupVolume(ctx, pool, name); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("LookupVolume of a deleted volume = %v, want ErrNotFound", err)
		}
		if at, err := b.hv.VolumeAt(ctx, made.Path); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("VolumeAt of a deleted volume = %s, %v, want ErrNotFound", at, err)
		}
	}
	for _, path := range []string{"/dev/disk/by-id/none", "/none"} {
		if is, err := b.hv.Connectable(ctx, path); is || err != nil {
			t.Errorf("Connectable(%s) = %v, %v; no target is here", path, is, err)
		}
		ok(t, b.hv.ConnectDevice(ctx, path))
		ok(t, b.hv.DisconnectDevice(ctx, path))
	}
	if c, err := b.hv.FindDeviceCopy(ctx, "/dev/disk/by-id/none", "/dev/disk/by-id/none-either"); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("FindDeviceCopy = %v, %v; no storage is here that copies", c, err)
	}
	if _, err := b.hv.RoundedBytes(ctx, "no-such-pool", diskBytes); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("RoundedBytes in no pool = %v, want ErrNotFound", err)
	}
	if _, err := b.hv.CreateVolume(ctx, "no-such-pool", "x", Raw, diskBytes, nil); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("CreateVolume in no pool = %v, want ErrNotFound", err)
	}
}

func testPools(t *testing.T, b *bench) {
	name := b.Pool(t)
	pools, err := b.hv.Pools(t.Context())
	ok(t, err)
	for _, p := range pools {
		if p.Name != name {
			continue
		}
		if p.Type != "dir" || p.Path == "" || !p.Active || p.CapacityBytes <= 0 || p.FreeBytes <= 0 {
			t.Errorf("pool = %+v", p)
		}
		return
	}
	t.Errorf("Pools() = %+v lacks %s", pools, name)
}
