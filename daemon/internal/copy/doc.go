// SPDX-License-Identifier: Apache-2.0

// Package copy is the copy engine: it makes dst hold the bytes of src, an image
// that nobody writes to, and proves it by reading dst back. It knows images,
// and nothing of volumes, guests or migrations; the guest's needs reach it as a
// Pacer, the operator's as a Limiter.
//
// The engine is written against End, one side of a copy, and asks an end what
// it can do, never what it is. Raw files and block devices are ends, and so are
// images of other formats, which QEMU opens and serves by NBD (package qemuimg).
//
// An image is divided into chunks of 1 MiB. Each chunk is read once, hashed
// (XXH3-128) as read, and written or, where it is zeros, deallocated. What is
// done is recorded in a Cursor, but only after dst has been flushed, so that a
// chunk recorded as done is on stable storage whatever dies.
//
// Verification reads dst back and compares hashes. A chunk is read back as soon as
// a flush has put it on stable storage, while others are still copied, so that both
// directions of a device are busy; the copy then ends with the little that is left,
// and with a sample of what was read early, which finds a device that has put later
// bytes where earlier ones were.
package copy
