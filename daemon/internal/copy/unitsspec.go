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

func (r Range) end() int64 { return r.Offset + r.Bytes }

// Differing is a unit that lacked the written content when read back.
type Differing struct {
	Range
	// Times counts the consecutive copies that found it different.
	Times int `json:"times"`
}

// If maxDiffering consecutive copies find a unit different, other writers cannot be the reason.
const maxDiffering = 3

// UnitsSpec describes a copy of some units (blocks of UnitBytes) of an image. Unlike with Copy,
// guests may write to src during the copy, and other hosts may copy to the same dst. DstIsZero and
// ThinBlockBytes of Spec are unused.
type UnitsSpec struct {
	Spec
	// UnitBytes is a power of two and a multiple of 4096.
	UnitBytes int64
	// Ranges are whole units, except at the end of the image.
	Ranges []Range
	// Again are the units that the previous copy found different. They are copied too.
	Again []Differing
	// Still: src has no writers any more, so all copies of a unit are equal. A difference is an
	// error.
	Still bool
}

// UnitsResult describes a finished copy of units.
type UnitsResult struct {
	// CopiedBytes were copied by this run or an interrupted one.
	CopiedBytes int64
	// Differing are the units that another copy has overwritten, or that dst did not keep. The
	// caller must copy them again.
	Differing []Differing
}

// check refuses images and ranges that cannot be copied unit by unit: two hosts must never read,
// modify and write one block of dst.
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

func (s *UnitsSpec) asked() []Range {
	ranges := slices.Clone(s.Ranges)
	for _, d := range s.Again {
		ranges = append(ranges, d.Range)
	}
	return ranges
}

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
