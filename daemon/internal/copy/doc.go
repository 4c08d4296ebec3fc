// SPDX-License-Identifier: Apache-2.0

// Package copy is the copy engine. It makes dst hold the bytes of src, an image without writers,
// and proves it by reading dst back. It knows images, but no volumes, guests or migrations: the
// guest's needs are a Pacer, the operator's a Limiter.
//
// The engine works on End, one side of a copy, and asks an end for its abilities, never for its
// type. Raw files and block devices are ends. Images of other formats are ends too: QEMU opens them
// and serves them by NBD (package qemuimg).
//
// An image is divided into chunks of 1 MiB. Each chunk is read once, hashed (XXH3-128) as read, and
// written; zeros are deallocated instead. A Cursor records completed chunks, but only after a flush
// of dst, so that a recorded chunk is on stable storage whatever crashes.
//
// Verification reads dst back and compares hashes. It reads a chunk back as soon as a flush has put
// it on stable storage, while other chunks are still copied, so that both directions of a device
// are busy. The copy ends with the remaining chunks and a sample of the earlier ones. The sample
// detects a device that has put later bytes over earlier ones.
package copy
