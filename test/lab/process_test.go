// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// Whoever cleans up kills what processesOf lists.
func TestADirectoryThatHasTheRootOfThisHostHasNoProcesses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	if found, err := processesOf(dir); err == nil || len(found) > 0 {
		t.Errorf("%d processes of this host are taken for those of a lab, %v", len(found), err)
	}
}
