// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatLibvirtKeepsIsSyncedWhereItIs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "autostart"), 0o755); err != nil {
		t.Fatal(err)
	}
	var synced []string
	record := func(f *os.File) error { synced = append(synced, f.Name()); return f.Sync() }
	if err := syncDirs([]string{dir, filepath.Join(dir, "autostart"), filepath.Join(dir, "none")}, record); err != nil {
		t.Fatal(err)
	}
	if want := []string{dir, filepath.Join(dir, "autostart")}; !slices.Equal(synced, want) {
		t.Errorf("synced %v, want %v", synced, want)
	}
	boom := errors.New("boom")
	if err := syncDirs([]string{dir}, func(*os.File) error { return boom }); !errors.Is(err, boom) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want the error with the directory", err)
	}
}

func TestTheDefinitionsAreAmongWhatIsSynced(t *testing.T) {
	dirs := libvirtDirs("/etc/libvirt/qemu")
	for _, want := range []string{"/etc/libvirt/qemu", "/etc/libvirt/qemu/autostart", "/var/lib/libvirt/qemu/save", "/var/lib/libvirt/qemu/nvram"} {
		if !slices.Contains(dirs, want) {
			t.Errorf("%v lacks %s", dirs, want)
		}
	}
}
