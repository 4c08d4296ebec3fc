// SPDX-License-Identifier: Apache-2.0

package server

import "testing"

func TestStatusCountsInWordsThatFitTheNumber(t *testing.T) {
	for events, want := range map[int64]string{
		0: "there was no event yet when it was last read",
		1: "1 event was as it was written when last read",
		7: "7 events were as they were written when last read",
	} {
		if got := verified(events); got != want {
			t.Errorf("%d events: %q, want %q", events, got, want)
		}
	}
}
