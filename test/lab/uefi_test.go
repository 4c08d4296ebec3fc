// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUEFIGuestBootsFromItsRootDiskAndKnowsWhich(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	roots := []string{"first", "second"}
	for _, root := range roots {
		v := Volume{Path: filepath.Join(l.Dir, root), Format: "raw"}
		if err := MakeBootVolume(t.Context(), v, BootVolumeBytes, root); err != nil {
			t.Fatal(err)
		}
	}
	disk := Volume{Path: filepath.Join(l.Dir, "first"), Format: "raw"}
	g, err := l.DefineGuest(t.Context(), GuestConfig{
		Name: "uefi", Machine: "q35", UEFI: true, Disks: []Disk{{Volume: disk, Serial: "root"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, want := range roots {
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := g.Root(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("the guest booted from %q, want %q", got, want)
		}
		if _, err := g.virsh(t.Context(), "shutdown", "--mode", "acpi"); err != nil {
			t.Fatal(err)
		}
		if err := g.WaitState(t.Context(), "shut off"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(l.Dir, "second"), disk.Path); err != nil && want == "first" {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(l.NVRAMDir(), "uefi_VARS.fd")); err != nil {
		t.Errorf("the guest's NVRAM: %v", err)
	}
}
