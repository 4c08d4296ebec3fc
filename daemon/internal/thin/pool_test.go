// SPDX-License-Identifier: Apache-2.0

package thin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The lines are a kernel's output (`dmsetup status`).
func TestTheStatusOfAPoolSaysHowFullItIs(t *testing.T) {
	for status, want := range map[string]Usage{
		"1 120/1024 512/2048 - rw discard_passdown queue_if_no_space - 1024":                {Data: 0.25, Metadata: 0.1171875},
		"0 1024/1024 2048/2048 7 ro no_discard_passdown error_if_no_space needs_check 1024": {Data: 1, Metadata: 1, Trouble: "it is read-only"},
		"4 12/1024 2048/2048 - out_of_data_space discard_passdown queue_if_no_space - 1024": {Data: 1, Metadata: 0.01171875, Trouble: "it has no room for data"},
		"Fail":  {Trouble: "it has failed"},
		"Error": {Trouble: "it has failed"},
	} {
		if got, err := ParseStatus(status); got != want || err != nil {
			t.Errorf("status %q: %+v, %v; want %+v", status, got, err, want)
		}
	}
	for _, status := range []string{"", "1", "1 2/3 4/5 -", "1 2/0 4/5 - rw", "1 a/3 4/5 - rw", "1 2/3 4 - rw", "1 2/3 4/5 - asleep"} {
		if got, err := ParseStatus(status); err == nil {
			t.Errorf("status %q: %+v", status, got)
		}
	}
}

func TestThePoolsOfLVMAreFoundByTheNamesThatItGivesThem(t *testing.T) {
	sys := t.TempDir()
	for device, has := range map[string][3]string{
		"dm-0": {"LVM-aaaa-tdata", "vg-pool_tdata", "253:0"},
		"dm-1": {"LVM-aaaa-tpool", "vg-pool-tpool", "253:1"},
		"dm-2": {"LVM-aaaa", "vg-thin1", "253:2"},
		"dm-3": {"LVM-bbbb-tpool", "fast--vg-my--pool--1-tpool", "253:3"},
		"dm-4": {"mpath-x-tpool", "vg-other-tpool", "253:4"},
		"sda":  {"LVM-cccc-tpool", "vg-sda-tpool", "8:0"},
	} {
		dir := filepath.Join(sys, "block", device)
		if err := os.MkdirAll(filepath.Join(dir, "dm"), 0o700); err != nil {
			t.Fatal(err)
		}
		for i, file := range []string{"dm/uuid", "dm/name", "dev"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(has[i]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := Devices(sys)
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{{"vg/pool", unix.Mkdev(253, 1)}, {"fast-vg/my-pool-1", unix.Mkdev(253, 3)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if none, err := Devices(t.TempDir()); err != nil || len(none) != 0 {
		t.Errorf("a host without the device mapper has %+v, %v", none, err)
	}
}

func TestOnlyAThinPoolHasAStatus(t *testing.T) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if status, err := Status(null, unix.Mkdev(253, 0)); err == nil {
		t.Errorf("another device answers %q", status)
	}
}
