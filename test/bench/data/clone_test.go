// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/lab"
)

func TestACloneSharesWhatItsSourceHasAndACopyDoesNot(t *testing.T) {
	lab.Require(t)
	dir := lab.TempDir(t)
	fs, err := lab.LoopFS(t.Context(), filepath.Join(dir, "fs"), "xfs", 300)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	// Every second block has data, so that there are more extents than one answer holds.
	src, fill := filepath.Join(fs.Dir, "src"), lab.Fill{Seed: 1, Percent: 50}
	if err := lab.MakeVolume(t.Context(), lab.Volume{Path: src, Format: "raw"}, 16<<20, fill); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		how     string
		written uint64
		want    error
	}{
		{"--reflink=never", 0, errNoClone},
		{"--reflink=never", 16 << 20, nil}, // the guest may have written all of it anew
		{"--reflink=always", 0, nil},
	} {
		if out, err := exec.CommandContext(t.Context(), "cp", c.how, src, filepath.Join(fs.Dir, "dst")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := wantClone(src, c.written); !errors.Is(err, c.want) {
			t.Errorf("after cp %s, and %d bytes written by a guest: %v, want %v", c.how, c.written, err, c.want)
		}
	}
	shared, all, err := sharedBytes(src)
	if err != nil || shared != all || all < 7<<20 || all > 16<<20 {
		t.Errorf("of a clone of some 8 MiB, %d of %d bytes are shared: %v", shared, all, err)
	}
}
