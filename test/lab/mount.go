// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// within reports whether path is dir or below it. Both are clean and absolute.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// mountsUnder lists the mount points at and below dir, the last mounted last.
func mountsUnder(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(string(data)) {
		const mountPoint = 4
		fields := strings.Fields(line)
		if len(fields) <= mountPoint {
			continue
		}
		if p := unescape.Replace(fields[mountPoint]); within(dir, p) {
			points = append(points, p)
		}
	}
	return points, nil
}

// unmountUnder unmounts everything at and below dir.
func unmountUnder(dir string) error {
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range slices.Backward(points) {
		if err := unix.Unmount(p, 0); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// shareDir makes dir a mount point of its own that hands on what is mounted
// below it to the namespaces made later: a pool mounted under dir is visible to
// a libvirtd that runs already, and leaves it when it is unmounted.
func shareDir(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, errors.Join(err, unix.Unmount(dir, 0)))
	}
	return nil
}
