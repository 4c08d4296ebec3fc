// SPDX-License-Identifier: Apache-2.0

package move

import "time"

// TrackedGuest is a guest with tracked writes. Process has the bitmap; it is "" for a guest that
// is off and guarded. Limit is the limit on its writes at that time.
type TrackedGuest struct {
	ID      string `json:"id"`
	Process string `json:"process"`
	Limit   int64  `json:"write_limit,omitempty"`
}

// LiveHistory is what this host has done so far in a move while all guests write.
type LiveHistory struct {
	// Over: this host was asked to remove all parts of the move. Ended is the newest generation
	// that it was asked to end, or 0.
	Over  bool
	Ended int
	// Tracked are the guests of the generation; nil if it did not begin here. Since is when the
	// present bitmap began to record.
	Tracked []TrackedGuest
	Since   time.Time
	// DstPrint is the fingerprint of dst when the generation began.
	DstPrint string
	// Throttles are the limits that rounds of all generations have set, or may have set, on the
	// guests' writes. Before is the state, by guest id, when the guest was last tracked.
	Throttles []int64
	Before    map[string]TrackedGuest
	// Round is the newest round with swapped bitmaps. Copied and CopiedBefore report whether this
	// host has copied it and the previous round.
	Round                int
	Copied, CopiedBefore bool
	// Read: the read of the last bitmaps has begun, and may have stopped the recording.
	Read bool
	// ReadDone: the read units are stored.
	ReadDone bool
}
