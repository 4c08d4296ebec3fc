// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
)

// Event is a line of 'go test -json' about a test.
type Event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

// maxLine is more than any line of output of a test.
const maxLine = 16 << 20

// ReadEvents hands over what 'go test -json' printed about tests. Lines that are none of its own,
// as make prints some between them, are passed over.
func ReadEvents(r io.Reader, take func(Event) error) error {
	return readLines(r, take, func(string) {})
}

// readLines is ReadEvents that hands over the other lines as well.
func readLines(r io.Reader, take func(Event) error, other func(line string)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			other(lines.Text())
			continue
		}
		if e.Test == "" {
			continue
		}
		if err := take(e); err != nil {
			return err
		}
	}
	return lines.Err()
}
