// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
)

// TestACloneThatNobodyKnowsIsFoundByItsHeader: in any pool of files, under any name of its base.
func TestACloneThatNobodyKnowsIsFoundByItsHeader(t *testing.T) {
	bases, clones := t.TempDir(), t.TempDir()
	base := filepath.Join(bases, "base.raw")
	for _, file := range []string{base, filepath.Join(bases, "other.raw")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(base, filepath.Join(clones, "link")); err != nil {
		t.Fatal(err)
	}
	pools := []hv.PoolInfo{{Name: "bases", Type: "dir", Path: bases, Active: true}, {Name: "clones", Type: "netfs", Path: clones, Active: true}}
	none := func(string) bool { return false }
	write := func(path, backing string) {
		t.Helper()
		if err := hosttest.WriteClone(path, backing); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(clones, "b"), filepath.Join(bases, "other.raw"))
	if got := location.CloneOf(pools, base, none); got != "" {
		t.Errorf("a clone of another image is taken for one: %s", got)
	}
	clone := filepath.Join(clones, "a")
	for _, name := range []string{base, "link", "json:{\"driver\":\"raw\",\"file\":{\"driver\":\"file\",\"filename\":\"" + base + "\"}}"} {
		write(clone, name)
		if got := location.CloneOf(pools, base, none); got != clone {
			t.Errorf("by the name %s: found %q, want %s", name, got, clone)
		}
	}
	if got := location.CloneOf(pools, base, func(file string) bool { return file == clone }); got != "" {
		t.Errorf("a file that is not to be read was: %s", got)
	}
	pools[1].Active = false
	if got := location.CloneOf(pools, base, none); got != "" {
		t.Errorf("a pool that is off was read: %s", got)
	}
}
