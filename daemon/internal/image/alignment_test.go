// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFirstBlockIsFilledAndNothingChanged: the file reads as before, and its beginning is
// allocated.
func TestAFirstBlockIsFilledAndNothingChanged(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 512)
	for name, before := range map[string][]byte{
		"zeros":             make([]byte, 3*MaxAlignBytes+512),
		"shorter than it":   make([]byte, 512),
		"empty":             {},
		"data at the front": append(slices.Clone(data), make([]byte, 2*MaxAlignBytes)...),
		"data in its end":   append(make([]byte, MaxAlignBytes-512), data...),
		"data behind it":    append(make([]byte, MaxAlignBytes), data...),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if at := bytes.IndexByte(before, 7); at >= 0 {
				if _, err := f.WriteAt(data, int64(at)); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Truncate(int64(len(before))); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := (Storage{}).FillFirstBlock(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file has changed (%v)", err)
			}
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Blocks == 0 && len(before) > 0 {
				t.Errorf("the file takes %d blocks (%v)", st.Blocks, err)
			}
		})
	}
}

func TestATrialOfAlignmentLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, hole := range []bool{false, true} {
		n, err := (Storage{}).DirectAlignBytes(dir, hole)
		if err != nil || n < 1 || n > MaxAlignBytes || n&(n-1) != 0 {
			t.Errorf("hole: %t, a file has to be a multiple of %d, %v", hole, n, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if n, err := (Storage{}).DirectAlignBytes(filepath.Join(dir, "none"), false); err == nil {
		t.Errorf("a directory that is not there: %d", n)
	}
}
