// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The bounds of a child. It reads images that guests have written, so what is in
// them must not make it take all memory of the host, or leave a core with a guest's
// data behind. What qemu-img needs for the largest images is well below.
const (
	childAddressSpaceBytes = 8 << 30
	childOpenFiles         = 1024
)

// childEnvironment is all that a child has of this process's environment.
func childEnvironment() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} }

// confine bounds what a child may take. The child has been started just before: the
// bounds hold for all that it takes from now on.
func confine(pid int) error {
	for _, bound := range []struct {
		name     string
		resource int
		most     uint64
	}{
		{"the address space", unix.RLIMIT_AS, childAddressSpaceBytes},
		{"the core file", unix.RLIMIT_CORE, 0},
		{"the open files", unix.RLIMIT_NOFILE, childOpenFiles},
	} {
		if err := lower(pid, bound.resource, bound.most); err != nil {
			return fmt.Errorf("bound %s of qemu-img: %w", bound.name, err)
		}
	}
	return nil
}

// lower sets a limit of a process, unless a smaller one holds for it.
func lower(pid, resource int, most uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
		return err
	}
	limit.Cur, limit.Max = min(limit.Cur, most), min(limit.Max, most)
	return unix.Prlimit(pid, resource, &limit, nil)
}
