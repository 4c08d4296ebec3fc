// SPDX-License-Identifier: Apache-2.0

package location

// Overlaps reports whether a write at one of the two places changes the other: they are the same
// place, or two names of a LUN or namespace, or one is made of the other, such as a partition and
// its disk, a map (LVM, multipath) and its devices, a loop device and its file. An error means
// that this is unknown.
//
// The kernel lets one program open a disk while another has a partition open, unless one of them
// opens exclusively, which QEMU does not.
func (p Place) Overlaps(path string) (bool, error) {
	same, overlaps, err := p.Meets(path)
	return same || overlaps, err
}

// Meets is Overlaps with separate results for the same place and a place that only overlaps.
func (p Place) Meets(path string) (same, overlaps bool, err error) {
	same, other, err := p.compare(path)
	if same || err != nil || !p.isHere() || !other.isHere() || !p.id.Block && !other.id.Block {
		return same, false, err
	}
	overlaps, err = overlap(p, other)
	return false, overlaps, err
}

func (p Place) isHere() bool { return p.madeOf != nil && p.kind.Path && !p.absent && p.err == nil }

// overlap reports whether one of two places is made of the other. Both exist here, and one is a
// block device.
func overlap(a, b Place) (bool, error) {
	partsOfA, err := a.madeOf()
	if err != nil {
		return false, err
	}
	partsOfB, err := b.madeOf()
	if err != nil {
		return false, err
	}
	return partsOfA.hasAny(namesOf(b.id)) || partsOfB.hasAny(namesOf(a.id)), nil
}
