// SPDX-License-Identifier: Apache-2.0

package location

// Overlaps reports whether a write at one of the two places changes the other. That is so for the
// same place, for two names of a LUN or namespace, and if one place is made of the other: a
// partition and its disk, a map (LVM, multipath) and its devices, a loop device and its file. An
// error means that this is unknown.
//
// The kernel lets two guests open a disk and its partition, because QEMU does not open devices
// exclusively.
func (p Place) Overlaps(path string) (bool, error) {
	same, overlaps, err := p.Meets(path)
	return same || overlaps, err
}

// Meets reports whether the two places are the same, and whether they overlap (Overlaps).
func (p Place) Meets(path string) (same, overlaps bool, err error) {
	same, other, err := p.compare(path)
	if same || err != nil || !p.isHere() || !other.isHere() || !p.id.Block && !other.id.Block {
		return same, false, err
	}
	overlaps, err = overlap(p, other)
	return false, overlaps, err
}

func (p Place) isHere() bool { return p.madeOf != nil && p.kind.Path && !p.absent && p.err == nil }

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
