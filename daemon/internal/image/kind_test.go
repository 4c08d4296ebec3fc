// SPDX-License-Identifier: Apache-2.0

package image

import (
	"testing"

	"github.com/volferry/volferry/internal/medium"
)

func TestNoAddressIsTakenForAPath(t *testing.T) {
	for _, kind := range medium.Addressed() {
		if is, path := (Storage{}).at(kind.Scheme + "web").(host); path {
			t.Errorf("%s is %+v", kind.Name, is)
		}
	}
}
