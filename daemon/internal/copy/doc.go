// SPDX-License-Identifier: Apache-2.0

// Package copy copies src, an image without writers, to dst, and proves the copy by reading dst
// back. A Pacer limits the copy for the guest, a Limiter for the operator. QEMU serves images of
// other formats than raw by NBD (package qemuimg).
//
// An image is divided into chunks of 1 MiB. Each chunk is read once, hashed (XXH3-128) as read,
// and written; zeros are deallocated instead. A Cursor records completed chunks only after a flush
// of dst, so that a recorded chunk is on stable storage whatever crashes.
//
// Verification reads a chunk of dst back as soon as it is on stable storage, and compares hashes.
// At the end it reads the remaining chunks, and a sample of the earlier ones.
package copy
