// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"slices"
	"strings"
)

// The packaged unit hides home directories with ProtectHome, and has its own temporary directories
// with PrivateTmp.
var (
	homeDirs      = []string{"/root", "/home", "/run/user"}
	temporaryDirs = []string{"/tmp", "/var/tmp"}
)

// hiddenByUnit returns the end of an error message if the packaged unit hides the path, even from
// ReadWritePaths, otherwise "".
func hiddenByUnit(path string) string {
	if os.Getenv("INVOCATION_ID") == "" || !inAny(slices.Concat(homeDirs, temporaryDirs), path) {
		return ""
	}
	return ": the unit of volferryd hides /root, /home, /run/user, /tmp and /var/tmp from it (ProtectHome, PrivateTmp), and ReadWritePaths does not bring them back; " +
		"choose a directory elsewhere, such as in /srv or /var/lib/libvirt"
}

func inAny(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path+"/", dir+"/") })
}
