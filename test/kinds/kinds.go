// SPDX-License-Identifier: Apache-2.0

// Package kinds is the matrix of the kinds of storage: from which to which a volume was moved, and
// in which state its guest was. It owns the line that a test says of a move, and the page of
// the documentation that is made of the lines of those tests that passed. It knows no storage.
package kinds

import (
	"fmt"
	"strings"
)

// Move is a move of a volume that has ended, as a test says it.
type Move struct {
	// From and To are kinds of storage in words.
	From, To string
	// Guest is the state of the guest at the end, or NoGuest.
	Guest string
	// End is the state of the migration: Completed, or Cancelled and back on From.
	End string
}

// NoGuest is a volume that no instance has.
const NoGuest = "no instance"

// The ends of a move.
const (
	Completed = "completed"
	Cancelled = "cancelled"
)

const (
	lineHead = "a volume was moved: "
	between  = "; "
)

// String is the line of the log.
func (m Move) String() string {
	return lineHead + strings.Join([]string{m.From, m.To, m.Guest, m.End}, between)
}

// parse reads a line of the output of a test. Said is whether it is about a move.
func parse(line string) (m Move, said bool, err error) {
	_, text, said := strings.Cut(strings.TrimSpace(line), lineHead)
	if !said {
		return m, false, nil
	}
	parts := strings.Split(text, between)
	if len(parts) != 4 {
		return m, true, fmt.Errorf("%q is no line of a move", text)
	}
	return Move{From: parts[0], To: parts[1], Guest: parts[2], End: parts[3]}, true, nil
}
