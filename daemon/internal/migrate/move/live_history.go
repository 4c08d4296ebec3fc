// SPDX-License-Identifier: Apache-2.0

package move

import "time"

// TrackedGuest is a guest with tracked writes. Process is the process that has the bitmap, "" for a
// guest that is off and guarded. Limit is the limit on its writes at that time.
type TrackedGuest struct {
	ID      string `json:"id"`
	Process string `json:"process"`
	Limit   int64  `json:"write_limit,omitempty"`
}

// LiveHistory is what this host has done so far in a move while all guests write.
type LiveHistory struct {
	// Over: this host was asked to leave nothing of the move. Ended is the newest generation that
	// it was asked to end; 0 if none.
	Over  bool
	Ended int
	// Tracked are the guests of the generation, nil if it was not begun here. Since is when the
	// present bitmap began to record.
	Tracked []TrackedGuest
	Since   time.Time
	// DstPrint is the fingerprint of dst when the generation began.
	DstPrint string
	// Throttles are the limits that rounds of any generation have set, or may have set, on the
	// guests' writes. Before is the state of each guest, by its id, when it was last tracked.
	Throttles []int64
	Before    map[string]TrackedGuest
	// Round is the newest round with swapped bitmaps. Copied reports whether this host has copied
	// it, CopiedBefore whether it has copied the previous round.
	Round                int
	Copied, CopiedBefore bool
	// Read: reading the last bitmaps was begun, and may have stopped the recording.
	Read bool
	// ReadDone: the units that were read are stored.
	ReadDone bool
}
