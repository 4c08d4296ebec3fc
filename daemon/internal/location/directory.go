// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenTo returns who besides root could replace a file in dir, or make a file there that passes
// for a volume: all users or a group that may write to dir, or a user who owns dir or a directory
// above it. It returns "" for none, and for an unreadable directory. It follows links.
func OpenTo(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || IsOfDevices(dir) {
		return ""
	}
	for at := real; ; at = filepath.Dir(at) {
		st, err := Stat(at)
		if err != nil {
			return ""
		}
		switch {
		case at == real && st.Mode&unix.S_IWOTH != 0:
			return "every user"
		case at == real && st.Mode&unix.S_IWGRP != 0 && st.Gid != 0:
			return fmt.Sprintf("its group (gid %d)", st.Gid)
		}
		if who := whoMayRename(&st); who != "" {
			return who
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// whoMayRename returns who may rename the entries of a directory, or "", besides root and the user
// of Volferry's process. In a sticky directory only the owners of an entry and of the directory
// may.
func whoMayRename(st *unix.Stat_t) string {
	switch {
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Sprintf("its owner (uid %d)", st.Uid)
	case st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0:
		return "every user"
	}
	return ""
}
