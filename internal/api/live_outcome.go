// SPDX-License-Identifier: Apache-2.0

package api

// LiveOutcome is what an op of a move while all guests write has found: Op.Live.
type LiveOutcome struct {
	// CopiedBytes is how much the op copied, and Seconds how long that took, with reading
	// back.
	CopiedBytes int64   `json:"copied_bytes"`
	Seconds     float64 `json:"seconds"`
	// DirtyBytes is what this host has still to copy: in the bitmaps that are on, and what
	// was different when it was read back. DirtySeconds is how long that took to come to be.
	DirtyBytes   int64   `json:"dirty_bytes"`
	DirtySeconds float64 `json:"dirty_seconds"`
}
