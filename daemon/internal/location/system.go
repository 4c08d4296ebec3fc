// SPDX-License-Identifier: Apache-2.0

package location

import "slices"

// trees are system directories with everything below them. crossings have places for volumes below
// them. A pool of either would show the system's own files as volumes.
var (
	trees     = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/log"}
	crossings = []string{"/", "/home", "/opt", "/root", "/tmp", "/var", "/var/cache", "/var/lib", "/var/lib/libvirt", "/var/tmp"}
)

// OfSystem reports whether no pool should be made of a directory. dir is a path without links.
func OfSystem(dir string) bool {
	return slices.Contains(crossings, dir) || slices.ContainsFunc(trees, func(tree string) bool { return dir == tree || below(dir, tree) })
}
