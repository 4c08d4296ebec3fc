// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenTo says who besides root could put another file in the place of one in dir, or
// could make there what is then taken for a volume: because everybody may write to it,
// or because it, or a directory above it, is somebody's who may rename what is in it.
// "" is nobody. Links are followed; a directory that cannot be looked at is open to
// nobody.
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
		if at == real && st.Mode&unix.S_IWOTH != 0 {
			return "every user"
		}
		if who := whoMayRename(&st); who != "" {
			return who
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// whoMayRename says who besides root, and the user who runs Volferry, may rename what is
// in a directory, "" for nobody. In a sticky directory only the owners of what is there
// and of the directory itself may.
func whoMayRename(st *unix.Stat_t) string {
	switch {
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Sprintf("its owner (uid %d)", st.Uid)
	case st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0:
		return "every user"
	}
	return ""
}
