// SPDX-License-Identifier: Apache-2.0

package location

import "slices"

// No pool may be made of these system directories, or below trees: it would show the system's own
// files as volumes. Below crossings a pool may be made.
var (
	trees     = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/log"}
	crossings = []string{"/", "/home", "/opt", "/root", "/tmp", "/var", "/var/cache", "/var/lib", "/var/lib/libvirt", "/var/tmp"}
)

// OfSystem reports whether no pool may be made of dir. dir is a path without links.
func OfSystem(dir string) bool {
	return slices.Contains(crossings, dir) || slices.ContainsFunc(trees, func(tree string) bool { return dir == tree || below(dir, tree) })
}
