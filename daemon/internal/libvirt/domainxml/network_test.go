// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"testing"

	"github.com/volferry/volferry/internal/medium"
)

func TestEachKindOfAddressHasASource(t *testing.T) {
	for _, kind := range medium.Addressed() {
		if protocols[kind.Protocol] == nil {
			t.Errorf("no <source> has %s", kind.Name)
		}
	}
}
