// SPDX-License-Identifier: Apache-2.0

// Package tape is disks that remember: each write, and each flush, of what the kernel
// has mounted on them is kept in the order in which it came, over all disks, and the disks can be
// had again as they were after any of them, with what was not flushed lost, torn or there.
//
// A disk is a file of a FUSE filesystem of ours under a loop device, so that it sees what a real
// one would: the writes of the kernel's own filesystem, and REQ_OP_FLUSH as an fsync of the file.
// The filesystem is served by a process of its own (Serve), since one that used its own disks could
// wait for itself. It knows nothing of what is on the disks.
package tape
