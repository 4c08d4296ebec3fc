// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/volferry/volferry/internal/medium"
)

func TestEachKindOfAddressIsOpened(t *testing.T) {
	for _, kind := range medium.Addressed() {
		if _, err := (Access{}).at(kind.Scheme + "web"); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}
