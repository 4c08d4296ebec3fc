// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// Range is a range of an image.
type Range struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// end is the first byte behind the range.
func (r Range) end() int64 { return r.Offset + r.Bytes }

// Differing is a unit that was not what a copy had written to it when the copy read it back.
type Differing struct {
	Range
	// Times is how many copies that follow each other have found it so.
	Times int `json:"times"`
}

// maxDiffering is how many copies may find a unit different, one after the other, before
// that is no other writer's doing any more.
const maxDiffering = 3

// UnitsSpec says which units of an image to copy, and how. In contrast to Copy, others write
// to both ends meanwhile: guests to src, and copies of other hosts to dst. DstIsZero and
// ThinBlockBytes of Spec are not used.
type UnitsSpec struct {
	Spec
	// UnitBytes is a power of two and a multiple of 4096.
	UnitBytes int64
	// Ranges are whole units, but at the end of the image.
	Ranges []Range
	// Again are the units that the copy before has found to differ. They are copied as well.
	Again []Differing
	// Still says that nobody writes to src any more, so that all copies of a unit are of the
	// same bytes: a difference is an error then.
	Still bool
}

// UnitsResult says what a copy of units did.
type UnitsResult struct {
	// CopiedBytes were copied, by this run or by one that was cut off.
	CopiedBytes int64
	// Differing are the units that another copy has written meanwhile, or that dst has not
	// kept: the caller copies them again.
	Differing []Differing
}

// check refuses what cannot be copied unit by unit: two hosts must never change one block of
// dst by reading it, changing a part and writing it back.
func (s *UnitsSpec) check(sizeBytes int64) error {
	switch {
	case s.Src.Format != qemuimg.FormatRaw, s.Dst.Format != qemuimg.FormatRaw:
		return &ImageError{Path: s.Dst.Path, Reason: "only raw images can be copied while others write them"}
	case s.UnitBytes < alignBytes || s.UnitBytes&(s.UnitBytes-1) != 0:
		return fmt.Errorf("a unit of %d bytes is no power of two of at least %d", s.UnitBytes, alignBytes)
	case sizeBytes%alignBytes != 0:
		return &ImageError{Path: s.Dst.Path, Reason: fmt.Sprintf("its size is no multiple of %d, so that two hosts cannot write it at once", alignBytes)}
	}
	for _, r := range s.asked() {
		whole := r.Bytes%s.UnitBytes == 0 || r.end() == sizeBytes
		if r.Offset < 0 || r.Bytes <= 0 || r.end() > sizeBytes || r.Offset%s.UnitBytes != 0 || !whole {
			return fmt.Errorf("range %d+%d is not of whole units of %d bytes of an image of %d", r.Offset, r.Bytes, s.UnitBytes, sizeBytes)
		}
	}
	return nil
}

// asked are the ranges that are copied, as they were given.
func (s *UnitsSpec) asked() []Range {
	ranges := slices.Clone(s.Ranges)
	for _, d := range s.Again {
		ranges = append(ranges, d.Range)
	}
	return ranges
}

// all are the ranges that are copied, in order, each byte once.
func (s *UnitsSpec) all() []Range {
	ranges := s.asked()
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.Offset, b.Offset) })
	var all []Range
	for _, r := range ranges {
		if last := len(all) - 1; last >= 0 && all[last].end() >= r.Offset {
			all[last].Bytes = max(all[last].end(), r.end()) - all[last].Offset
			continue
		}
		all = append(all, r)
	}
	return all
}
