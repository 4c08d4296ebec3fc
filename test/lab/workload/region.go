// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// A region is a part of a volume in which two guests count one number up, under a lock that
// they keep there as well: Lamport's bakery. Each guest has a block with its ticket, which it
// alone writes; the third block has the number, which the one writes that has the lock. Blocks
// of zeroes are a region in which nobody has counted yet.

// RegionBlocks is the size of a region in blocks.
const RegionBlocks = 3

// countBlock is the block of the number.
const countBlock = 2

// Counters is how many guests count in a region.
const Counters = 2

// TicketBlock is the block of a guest's ticket in a region that begins at a block.
func TicketBlock(region, guest uint64) uint64 { return region + guest }

// CountBlock is the block of the number in a region that begins at a block.
func CountBlock(region uint64) uint64 { return region + countBlock }

// Ticket is what a guest says of itself: it is drawing a number, or waits for its turn with one,
// or has the lock. Number 0 is nobody who wants it.
type Ticket struct {
	Choosing bool
	Number   uint64
}

// Before reports whether a ticket, which is guest's, has its turn before the other guest's.
func (t Ticket) Before(guest uint64, other Ticket, otherGuest uint64) bool {
	return t.Number != 0 && (other.Number == 0 || t.Number < other.Number || t.Number == other.Number && guest < otherGuest)
}

// Put writes the ticket into a block.
func (t Ticket) Put(block []byte) {
	choosing := uint64(0)
	if t.Choosing {
		choosing = 1
	}
	putNumbers(block, choosing, t.Number)
}

// ReadTicket reads a ticket from a block.
func ReadTicket(block []byte) (Ticket, error) {
	n, err := readNumbers(block, 2)
	return Ticket{Choosing: n[0] != 0, Number: n[1]}, err
}

// Count is the number, and how much of it each guest has counted.
type Count struct {
	Value uint64
	By    [Counters]uint64
}

// Put writes the number into a block.
func (c Count) Put(block []byte) { putNumbers(block, c.Value, c.By[0], c.By[1]) }

// ReadCount reads the number from a block.
func ReadCount(block []byte) (Count, error) {
	n, err := readNumbers(block, 1+Counters)
	return Count{Value: n[0], By: [Counters]uint64{n[1], n[2]}}, err
}

// regionMagic marks a block of a region that was written.
const regionMagic = 0x5246_4552_4559_5232

// The layout, little-endian: magic and numbers of 8 bytes each, and a checksum over these. All
// of it is in one sector, so that nobody reads half of it.
func putNumbers(block []byte, numbers ...uint64) {
	clear(block[:BlockSize])
	text := binary.LittleEndian.AppendUint64(block[:0], regionMagic)
	for _, n := range numbers {
		text = binary.LittleEndian.AppendUint64(text, n)
	}
	binary.LittleEndian.AppendUint64(text, xxh3.Hash(text))
}

func readNumbers(block []byte, count int) ([]uint64, error) {
	numbers := make([]uint64, count)
	if IsZero(block[:BlockSize]) {
		return numbers, nil
	}
	const word = 8
	end := word * (count + 1)
	if binary.LittleEndian.Uint64(block) != regionMagic {
		return numbers, fmt.Errorf("no block of a region (starts % x)", block[:16])
	}
	if binary.LittleEndian.Uint64(block[end:]) != xxh3.Hash(block[:end]) {
		return numbers, errors.New("the checksum is wrong")
	}
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint64(block[word*(i+1):])
	}
	return numbers, nil
}
