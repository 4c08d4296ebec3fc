// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/location"
)

// TestADirectoryIsOpenToThoseWhoCouldReplaceAFileInIt: that file would be a guest's disk.
func TestADirectoryIsOpenToThoseWhoCouldReplaceAFileInIt(t *testing.T) {
	const somebody = 4711
	for name, c := range map[string]struct {
		mode        os.FileMode
		uid, gid    int
		open, below bool
	}{
		"root's":                  {mode: 0o755},
		"root's, closed":          {mode: 0o700},
		"open to all":             {mode: 0o777, open: true, below: true},
		"open to all, and sticky": {mode: 0o777 | os.ModeSticky, open: true},
		"somebody's":              {mode: 0o755, uid: somebody, open: true, below: true},
		"a group's":               {mode: 0o775, gid: somebody, open: true},
		"root's group's":          {mode: 0o775},
	} {
		t.Run(name, func(t *testing.T) {
			if (c.uid != 0 || c.gid != 0) && os.Geteuid() != 0 {
				t.Skip("only root gives a directory to somebody else")
			}
			dir := filepath.Join(realDir(t), "dir")
			inner := filepath.Join(dir, "inner") // root's own
			mkdir(t, dir)
			mkdir(t, inner)
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.uid != 0 || c.gid != 0 {
				if err := os.Chown(dir, c.uid, c.gid); err != nil {
					t.Fatal(err)
				}
			}
			for dir, want := range map[string]bool{dir: c.open, inner: c.below} {
				if who := location.OpenTo(dir); (who != "") != want {
					t.Errorf("%s is open to %q, want somebody: %t", dir, who, want)
				}
			}
		})
	}
}
