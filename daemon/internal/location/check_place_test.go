// SPDX-License-Identifier: Apache-2.0

package location

import (
	"testing"

	"github.com/volferry/volferry/internal/medium"
)

func TestEachKindOfAddressHasARule(t *testing.T) {
	for _, kind := range medium.Addressed() {
		if addressRules[kind.Scheme] == nil {
			t.Errorf("%s may be anywhere", kind.Name)
		}
	}
}
