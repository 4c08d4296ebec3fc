// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestAFilesystemIsKnownByItsKindAndItsLocks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	was := mountInfo
	mountInfo = filepath.Join(dir, "mountinfo")
	t.Cleanup(func() { mountInfo = was })
	for _, c := range []struct {
		kind, options string
		local         bool
		here          string
	}{
		{"nfs4", "rw,vers=4.2,local_lock=none,addr=10.0.0.1", false, ""},
		{"nfs", "rw,vers=3,nolock,local_lock=all", false, "nolock"},
		{"nfs", "rw,vers=3,local_lock=posix", false, "local_lock=posix"},
		{"ocfs2", "rw,localflocks", false, "localflocks"},
		{"fuse.other", "rw", false, ""},
		{"xfs", "rw", true, ""},
		{"tmpfs", "rw", true, ""},
	} {
		check(t, os.WriteFile(mountInfo, fmt.Appendf(nil, "36 35 0:77 / %s rw - %s server:/x %s\n", dir, c.kind, c.options), 0o600))
		fs, err := FilesystemOf(dir)
		check(t, err)
		if fs.Kind != c.kind || fs.Local() != c.local || fs.LocksHereOnly() != c.here {
			t.Errorf("%+v, want %+v", fs, c)
		}
	}
}
