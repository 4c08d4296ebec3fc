// SPDX-License-Identifier: Apache-2.0

package location

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var mountInfo = "/proc/self/mountinfo"

type mount struct {
	point, kind string
	dev         uint64
	// readOnly is true if the filesystem itself is read-only, not only this mount.
	readOnly bool
	options  []string
}

func (m mount) network() bool {
	for _, kind := range []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph"} {
		if m.kind == kind {
			return true
		}
	}
	return false
}

// mountOf finds the mount of a clean path by the path's text: the deepest mount point. Of several
// mounts there, the last hides the others.
func mountOf(table, path string) (found mount, ok bool) {
	for line := range strings.Lines(table) {
		m, valid := parseMount(line)
		if !valid || (m.point != "/" && path != m.point && !strings.HasPrefix(path, m.point+"/")) {
			continue
		}
		if len(m.point) >= len(found.point) {
			found, ok = m, true
		}
	}
	return found, ok
}

func parseMount(line string) (m mount, ok bool) {
	fields, rest, _ := strings.Cut(line, " - ")
	parts := strings.Fields(fields)
	kind, _, _ := strings.Cut(rest, " ")
	if len(parts) < 5 || kind == "" {
		return m, false
	}
	major, minor, _ := strings.Cut(parts[2], ":")
	a, err := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if err != nil || err2 != nil {
		return m, false
	}
	after := strings.Fields(rest)
	options := strings.Split(after[len(after)-1], ",")
	return mount{
		point: unescapeMount(parts[4]), kind: kind, dev: unix.Mkdev(uint32(a), uint32(b)), readOnly: slices.Contains(options, "ro"),
		options: options,
	}, true
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
