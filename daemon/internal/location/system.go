// SPDX-License-Identifier: Apache-2.0

package location

import "slices"

// trees are directories with all that is below them, and crossings those with places for volumes
// below them, which are none themselves: a pool of either would show the system's own files as
// volumes, and list every one of them.
var (
	trees     = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/log"}
	crossings = []string{"/", "/home", "/opt", "/root", "/tmp", "/var", "/var/cache", "/var/lib", "/var/lib/libvirt", "/var/tmp"}
)

// OfSystem reports whether a directory, to which no link leads, is one that nobody should make a
// pool of.
func OfSystem(dir string) bool {
	return slices.Contains(crossings, dir) || slices.ContainsFunc(trees, func(tree string) bool { return dir == tree || below(dir, tree) })
}
