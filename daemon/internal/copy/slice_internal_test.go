// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestASliceRefusesWhatReachesBehindIt in every method, without reading or writing.
func TestASliceRefusesWhatReachesBehindIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "larger")
	before := bytes.Repeat([]byte{1}, 4096)
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	whole, err := OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	end, err := newSlice(whole, Image{Path: path, SizeBytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close() }()
	for _, off := range []int64{-512, 513, 1024, 2048} {
		read := make([]byte, 512)
		if n, err := end.ReadAt(read, off); n != 0 || err == nil {
			t.Errorf("at %d: read %d, %v", off, n, err)
		}
		if n, err := end.WriteAt(make([]byte, 512), off); n != 0 || err == nil {
			t.Errorf("at %d: wrote %d, %v", off, n, err)
		}
		if err := end.Zero(off, 512); err == nil {
			t.Errorf("at %d: zeroed", off)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed (%v)", err)
	}
	if _, ok := end.(Cloner); ok {
		t.Error("a slice would clone all of a file")
	}
}
