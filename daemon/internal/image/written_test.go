// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileThatSomebodyWritesIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.raw")
	written := func() bool {
		t.Helper()
		got, err := Storage{}.Written(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if written() {
		t.Error("a file that is not there is written")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if !written() {
		t.Error("it is open for writing, and that is not seen")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() //nolint:errcheck // it only reads
	if written() {
		t.Error("a file that is only read is written")
	}
}
