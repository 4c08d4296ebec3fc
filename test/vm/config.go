// SPDX-License-Identifier: Apache-2.0

package vm

import "github.com/volferry/volferry/test/vm/boot"

// Config says what a machine is and what it runs. The zero value of every field but
// Command is a good one.
type Config struct {
	// Shares are directories of this host that the machine sees. It may write to those that
	// say so, and what it writes to the others is in its memory.
	Shares []Share
	// DiskBytes are the sizes of its disks, which are empty. Machine.Disk has their paths.
	DiskBytes []int64
	// MemoryMiB is 3 GiB if it is 0.
	MemoryMiB int
	// Command is what it runs, by root, with no more in its environment than Env and a PATH.
	Command []string
	Env     []string
	// Dir is where the command starts.
	Dir string
	// Systemd: systemd is process 1 and runs the command in a unit. Without it there is no
	// systemd, but in a UserMode machine, which always has it.
	Systemd bool
}

// Share is a directory of this host at a path of the machine.
type Share struct {
	Host string
	boot.Share
}
