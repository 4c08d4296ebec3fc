// SPDX-License-Identifier: Apache-2.0

// Package volume creates, adopts and deletes the volumes of this host, each as
// one durable op: a crash leaves neither a volume without its bytes nor bytes
// that no volume accounts for. It owns the choice of the pool and the question
// whether an image may be deleted. It knows nothing of attachments beyond
// refusing to touch what has one, and moves no data: that is the migration.
package volume
