// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
)

// maxGuestLogs is the number of guests with a log in GuestLogs.
const maxGuestLogs = 3

// GuestLogs returns the paths of the logs of QEMU, of the guests that wrote last: what QEMU says
// before it ends by itself is there alone.
func (l *Libvirtd) GuestLogs() []string {
	paths, err := filepath.Glob(filepath.Join(l.Dir, "log", "qemu", "*.log"))
	if err != nil {
		return nil // the pattern is right
	}
	written := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(written(b), written(a)) })
	return paths[:min(maxGuestLogs, len(paths))]
}
