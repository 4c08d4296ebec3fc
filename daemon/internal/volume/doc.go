// SPDX-License-Identifier: Apache-2.0

// Package volume creates, adopts, resizes and deletes the volumes of this host, each as
// one durable op: a crash leaves neither a volume without its bytes nor bytes
// that no volume accounts for. It owns the choice of the pool and the question
// whether an image may be deleted. It changes no attachment and moves no data: that
// is for attach and for the migration. DESIGN.md has every interruption of a resize.
package volume
