// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The tables are a kernel's output (`dmsetup table`).
func TestAPoolPromisesZerosOnlyWhereItClearsItsBlocks(t *testing.T) {
	for params, want := range map[string]int64{
		"253:0 253:1 128 0 0":                              64 << 10,
		"253:0 253:1 2048 0 1 no_discard_passdown":         1 << 20,
		"253:0 253:1 128 0 1 error_if_no_space":            64 << 10,
		"253:0 253:1 128 0 1 skip_block_zeroing":           0,
		"253:0 253:1 128 0 2 ignore_discard read_only":     0,
		"253:0 253:1 128 0 2 skip_block_zeroing read_only": 0,
	} {
		if got, err := blockBytes(params); got != want || err != nil {
			t.Errorf("pool %q: blocks of %d bytes, %v; want %d", params, got, err, want)
		}
	}
	for _, params := range []string{"", "253:0 253:1", "253:0 253:1 many 0 0"} {
		if got, err := blockBytes(params); err == nil {
			t.Errorf("pool %q: blocks of %d bytes", params, got)
		}
	}
}

func TestAThinVolumeOverAnotherOriginReadsAsThat(t *testing.T) {
	if pool, ok := poolOf("253:2 1"); !ok || pool != unix.Mkdev(253, 2) {
		t.Errorf("the pool is %d, %v", pool, ok)
	}
	for _, params := range []string{"253:2 1 253:7", "", "253 1", "a:b 1"} {
		if pool, ok := poolOf(params); ok {
			t.Errorf("table %q: the pool is %d", params, pool)
		}
	}
}

func TestOnlyTheDeviceMapperIsAsked(t *testing.T) {
	for _, path := range []string{"/dev/null", filepath.Join(t.TempDir(), "file")} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if n, err := BlockBytes(f, unix.Mkdev(253, 0)); err == nil {
			t.Errorf("%s answers %d", path, n)
		}
	}
}

func TestADeviceNumberIsEncodedAsTheKernelDoes(t *testing.T) {
	for device, want := range map[uint64]uint64{
		unix.Mkdev(253, 4):      253<<8 | 4,
		unix.Mkdev(259, 0x1234): 259<<8 | 0x34 | 0x12<<20,
	} {
		if got := encode(device); got != want {
			t.Errorf("%d:%d is %#x, want %#x", unix.Major(device), unix.Minor(device), got, want)
		}
	}
}
