// SPDX-License-Identifier: Apache-2.0

// Package volume creates, adopts, resizes and deletes the volumes of this host, each as one
// durable op: a crash leaves neither a volume without its bytes nor bytes that belong to no
// volume. It chooses the pool and decides whether an image may be deleted. It changes no
// attachment and moves no data: packages attach and migrate do. DESIGN.md has every
// interruption of a resize.
package volume
