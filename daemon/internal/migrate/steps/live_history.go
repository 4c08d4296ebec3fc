// SPDX-License-Identifier: Apache-2.0

package steps

import "time"

// TrackedGuest is a guest whose writes are followed: Process is the process that has the
// bitmap, "" of a guest that is off and guarded.
// Limit is the limit on its writes that it had then.
type TrackedGuest struct {
	ID      string `json:"id"`
	Process string `json:"process"`
	Limit   int64  `json:"write_limit,omitempty"`
}

// LiveHistory is what this host has done so far in a move while all guests write.
type LiveHistory struct {
	// Over: it was asked to leave nothing behind. Ended is the newest generation that it was
	// asked to end; 0 if none.
	Over  bool
	Ended int
	// Tracked are the guests of the generation, nil if it was not begun here. Since is when
	// the bitmap that records now began.
	Tracked []TrackedGuest
	Since   time.Time
	// DstPrint is the fingerprint of dst when the generation began.
	DstPrint string
	// Throttles are the limits that rounds of any generation have put on the writes of the guests,
	// or may have; and Before is what each guest had, by its id, when it was tracked last.
	Throttles []int64
	Before    map[string]TrackedGuest
	// Round is the newest round that bitmaps were swapped for. Copied reports whether this host
	// has copied it, and CopiedBefore the same of the round before.
	Round                int
	Copied, CopiedBefore bool
	// Read: the last bitmaps were read, or it was begun, and may have ended what records.
	Read bool
	// ReadDone: what was read is kept.
	ReadDone bool
}
