// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// CheckDirectory refuses (permission_denied) a path that a user other than root could make
// another file's: because the directory that it is in, or one above that, belongs to
// that user, or because everybody may write to it and it is not sticky. What is in a
// directory of AllowedPaths is the operator's to judge. Links are followed.
func (r Rules) CheckDirectory(path string) error {
	real, err := resolve(path)
	if err != nil {
		return api.Errorf(api.CodeInvalidArgument, "path %.120q is in a directory that does not exist", path)
	}
	for _, dir := range r.AllowedPaths {
		if within(real, dir) {
			return nil
		}
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		st, err := Stat(dir)
		if err != nil {
			return api.Errorf(api.CodeInvalidArgument, "cannot use path %.120q: %v", path, err)
		}
		if who := whoMayRename(&st); who != "" {
			return api.Errorf(api.CodePermissionDenied, "%s is in %s, where %s could put another file in its place; name another directory, or list this one in allowed_paths in the configuration",
				path, dir, who)
		}
		if dir == filepath.Dir(dir) {
			return nil
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
