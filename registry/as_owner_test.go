// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/expect"
)

func TestADirectoryBehindALinkIsReachedOnlyThroughThoseAboveItsTarget(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	expect.OK(t, err)
	above, link := filepath.Join(top, "above"), filepath.Join(top, "link")
	dir := filepath.Join(above, "in")
	expect.OK(t, os.MkdirAll(dir, 0o700))
	expect.OK(t, os.Symlink(dir, link))
	owner := databaseOwner{os.Getuid(), os.Getgid()}
	if !owner.mayMakeIn(dir) || !owner.mayMakeIn(link) {
		t.Error("the owner of a directory, and of all above it, may not make a file there")
	}
	expect.OK(t, os.Chmod(above, 0o600))
	t.Cleanup(func() { expect.OK(t, os.Chmod(above, 0o700)) }) //nolint:gosec // of a directory that is removed
	if owner.mayMakeIn(dir) || owner.mayMakeIn(link) {
		t.Errorf("by the directory itself: %v, by a link to it: %v, below a directory that its owner may not search", owner.mayMakeIn(dir), owner.mayMakeIn(link))
	}
}
