// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAnEndOfAnotherFileThanTheLockedOneIsRefused: the path may name another file when it is opened
// again.
func TestAnEndOfAnotherFileThanTheLockedOneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dst")
	create := func() {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create()
	spec := Spec{Dst: Image{Path: path, Format: "raw"}}
	lock, err := spec.lockDst()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	for _, replaced := range []bool{false, true} {
		if replaced {
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			create()
		}
		dst, err := OpenFile(path, true)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(sameFile(lock, dst), dst.Close())
		if (err != nil) != replaced {
			t.Errorf("replaced %t: %v", replaced, err)
		}
	}
}
