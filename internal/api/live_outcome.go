// SPDX-License-Identifier: Apache-2.0

package api

// LiveOutcome is the result of an op of a move while all guests write: Op.Live.
type LiveOutcome struct {
	// CopiedBytes is how much the op copied, and Seconds how long that took, verification included.
	CopiedBytes int64   `json:"copied_bytes"`
	Seconds     float64 `json:"seconds"`
	// DirtyBytes is how much this host still has to copy: the active bitmaps, and the blocks that
	// differed at verification. DirtySeconds is how long the guests took to write it.
	DirtyBytes   int64   `json:"dirty_bytes"`
	DirtySeconds float64 `json:"dirty_seconds"`
}
