// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The limits of a child. An image that a guest has written must not make the child take all memory
// of the host, or leave a core file with a guest's data. qemu-img needs much less for the largest
// images.
const (
	childAddressSpaceBytes = 8 << 30
	childOpenFiles         = 1024
)

func childEnvironment() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} }

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

func lower(pid, resource int, most uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
		return err
	}
	limit.Cur, limit.Max = min(limit.Cur, most), min(limit.Max, most)
	return unix.Prlimit(pid, resource, &limit, nil)
}
