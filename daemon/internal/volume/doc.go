// SPDX-License-Identifier: Apache-2.0

// Package volume creates, adopts, resizes and deletes the volumes of this host, each by one
// durable op: after a crash every volume has its bytes, and all bytes belong to a volume. It
// chooses the pool and decides whether an image may be deleted. DESIGN.md has every interruption
// of a resize.
package volume
