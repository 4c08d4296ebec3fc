// SPDX-License-Identifier: Apache-2.0

package humanize_test

import (
	"testing"

	"github.com/volferry/volferry/internal/humanize"
)

func TestOneThingIsNoPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 volumes", 1: "1 volume", 2: "2 volumes"} {
		if got := humanize.Count(n, "volume"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
