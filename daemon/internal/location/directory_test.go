// SPDX-License-Identifier: Apache-2.0

package location_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// TestAFileIsNotMadeWhereSomebodyElseCouldReplaceIt: it would be the disk of a guest.
func TestAFileIsNotMadeWhereSomebodyElseCouldReplaceIt(t *testing.T) {
	const somebody = 4711
	for name, c := range map[string]struct {
		mode    os.FileMode
		uid     int
		allowed bool
		refused bool
	}{
		"root's":                             {mode: 0o755},
		"root's, closed":                     {mode: 0o700},
		"open to all":                        {mode: 0o777, refused: true},
		"open to all, and sticky":            {mode: 0o777 | os.ModeSticky},
		"somebody's":                         {mode: 0o755, uid: somebody, refused: true},
		"somebody's, and sticky":             {mode: 0o777 | os.ModeSticky, uid: somebody, refused: true},
		"somebody's, that the rules allow":   {mode: 0o755, uid: somebody, allowed: true},
		"open to all, which the rules allow": {mode: 0o777, allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.uid != 0 && os.Geteuid() != 0 {
				t.Skip("only root gives a directory to somebody else")
			}
			dir := filepath.Join(realDir(t), "dir")
			inner := filepath.Join(dir, "inner") // root's own
			mkdir(t, dir)
			mkdir(t, inner)
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.uid != 0 {
				if err := os.Chown(dir, c.uid, -1); err != nil {
					t.Fatal(err)
				}
			}
			rules := location.Rules{}
			if c.allowed {
				rules.AllowedPaths = []string{dir}
			}
			for _, path := range []string{filepath.Join(dir, "dst.raw"), filepath.Join(inner, "dst.raw")} {
				err := rules.CheckDirectory(path)
				if c.refused && api.CodeOf(err) != api.CodePermissionDenied || !c.refused && err != nil {
					t.Errorf("%s: %v, want a refusal: %t", path, err, c.refused)
				}
			}
		})
	}
}
