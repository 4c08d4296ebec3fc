// SPDX-License-Identifier: Apache-2.0

package move

import "time"

// TrackedGuest is a guest with tracked writes. Process is the process with the bitmap; it is ""
// for a guest that is off and guarded against a start. Limit is the guest's write limit from
// before the migration.
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
	// Tracked has the guests of the generation. It is nil if the generation did not begin here.
	// Since is when the present bitmap began to record.
	Tracked []TrackedGuest
	Since   time.Time
	// DstPrint is the fingerprint of dst when the generation began.
	DstPrint string
	// Throttles has the limits on the guests' writes that rounds of all generations have set, or
	// may have set. Before has, by guest id, the guest's state when its tracking last began.
	Throttles []int64
	Before    map[string]TrackedGuest
	// Round is the newest round with swapped bitmaps. Copied reports whether this host has copied
	// it, CopiedBefore the previous round.
	Round                int
	Copied, CopiedBefore bool
	// Read: the read of the last bitmaps has begun, and may have stopped the recording.
	Read bool
	// ReadDone: the units of the last read are stored.
	ReadDone bool
}
