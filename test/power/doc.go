// SPDX-License-Identifier: Apache-2.0

// Package power cuts the power of a host in the middle of moves, at every write that reached a
// disk. Everything is real: libvirtd, QEMU, the programs and the kernel's filesystems; the disks
// below them remember (package tape). DESIGN.md says what is claimed of each cut. It knows the
// host from outside, and the journal by a program that opens it as the daemon does.
package power
