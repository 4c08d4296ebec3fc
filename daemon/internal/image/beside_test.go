// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsBesideAnImageDiffersInTheEndingOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a1.qcow2", "a1.s1", "a1", "a12.s1", "b.s1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Storage{}.Beside(filepath.Join(dir, "a1.qcow2"))
	if diff := cmp.Diff([]string{filepath.Join(dir, "a1"), filepath.Join(dir, "a1.s1")}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
