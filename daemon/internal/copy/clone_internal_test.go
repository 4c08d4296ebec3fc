// SPDX-License-Identifier: Apache-2.0

package copy

import "testing"

// sharing is an end that shares the space of any other.
type sharing struct {
	End
	shared bool
}

func (s *sharing) CloneFrom(End) error {
	s.shared = true
	return nil
}

func TestAnEndThatIsToKeepItsRoomSharesNone(t *testing.T) {
	for _, thick := range []bool{false, true} {
		dst := &sharing{}
		cloned, err := (&Spec{Thick: thick}).clone(nil, dst)
		if err != nil || cloned == thick || dst.shared == thick {
			t.Errorf("thick %v: cloned %v, shared %v (%v)", thick, cloned, dst.shared, err)
		}
	}
}
