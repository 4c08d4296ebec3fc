// SPDX-License-Identifier: Apache-2.0

package workload

import "testing"

func TestWhatIsPutIntoARegionIsReadFromIt(t *testing.T) {
	block := make([]byte, BlockSize)
	if got, err := ReadCount(block); err != nil || got != (Count{}) {
		t.Errorf("zeroes are %+v (%v)", got, err)
	}
	want := Count{Value: 7, By: [Counters]uint64{3, 4}}
	want.Put(block)
	if got, err := ReadCount(block); err != nil || got != want {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
	block[9] ^= 1
	if got, err := ReadCount(block); err == nil {
		t.Errorf("a flipped bit is read as %+v", got)
	}
	ticket := Ticket{Choosing: true, Number: 5}
	ticket.Put(block)
	if got, err := ReadTicket(block); err != nil || got != ticket {
		t.Errorf("read %+v (%v), want %+v", got, err, ticket)
	}
	PutRecord(block, 1, FillSeq, 0)
	if _, err := ReadTicket(block); err == nil {
		t.Error("a record of a writer is read as a ticket")
	}
}

func TestOfTwoTicketsOneIsBefore(t *testing.T) {
	for _, tc := range []struct{ a, b uint64 }{{1, 2}, {2, 1}, {1, 1}, {1, 0}, {0, 1}} {
		a, b := Ticket{Number: tc.a}, Ticket{Number: tc.b}
		if a.Before(0, b, 1) == b.Before(1, a, 0) {
			t.Errorf("tickets %d and %d: both or none is first", tc.a, tc.b)
		}
	}
}
