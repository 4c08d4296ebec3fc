// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/zeebo/xxh3"
)

// unitsRecord is a line of the cursor of a copy of units. The first line identifies the copy; each
// other line records one more completed window of windowBytes.
type unitsRecord struct {
	Copy      string      `json:"copy,omitempty"`
	Differing []Differing `json:"differing,omitempty"`
}

type unitsCursor struct {
	cursor    Cursor
	windows   int
	differing []Differing
}

func unitsIdentity(s *UnitsSpec) string {
	h := xxh3.New()
	_, _ = fmt.Fprint(h, s.Src.Path, "\x00", s.Dst.Path, "\x00", s.UnitBytes, s.Verify, s.Again, s.Ranges)
	return fmt.Sprintf("%016x", h.Sum64())
}

// loadUnits reads the progress of a copy. It returns an error for the cursor of another copy.
func loadUnits(s *UnitsSpec) (*unitsCursor, error) {
	c := &unitsCursor{cursor: s.Cursor}
	if s.Cursor == nil {
		return c, nil
	}
	log, err := s.Cursor.Load()
	if err != nil {
		return nil, err
	}
	if len(log) == 0 {
		return c, c.append(unitsRecord{Copy: unitsIdentity(s)})
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n")) {
		var r unitsRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read cursor: %w", err)
		}
		if i == 0 {
			if r.Copy != unitsIdentity(s) {
				return nil, fmt.Errorf("the cursor is of another copy than that of %s to %s", s.Src.Path, s.Dst.Path)
			}
			continue
		}
		c.windows++
		c.differing = append(c.differing, r.Differing...)
	}
	return c, nil
}

func (c *unitsCursor) add(differing []Differing) error {
	c.windows++
	if c.cursor == nil {
		return nil
	}
	return c.append(unitsRecord{Differing: differing})
}

func (c *unitsCursor) append(r unitsRecord) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.cursor.Append(append(line, '\n'))
}
