// SPDX-License-Identifier: Apache-2.0

package api

// LiveOutcome is the result of a host's op of a move while all guests write (Op.Live).
type LiveOutcome struct {
	// CopiedBytes were copied in Seconds, verification included.
	CopiedBytes int64   `json:"copied_bytes"`
	Seconds     float64 `json:"seconds"`
	// DirtyBytes is how much this host still has to copy: the blocks in the active bitmaps, and
	// the blocks that differed at verification. The guests wrote these blocks in DirtySeconds.
	DirtyBytes   int64   `json:"dirty_bytes"`
	DirtySeconds float64 `json:"dirty_seconds"`
}
