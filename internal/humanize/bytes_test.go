// SPDX-License-Identifier: Apache-2.0

package humanize_test

import (
	"testing"

	"github.com/volferry/volferry/internal/humanize"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 1<<20 - 1: "1MiB", 20 << 30: "20GiB",
		20<<30 + 512: "20GiB", 1<<63 - 1: "8EiB", -2048: "-2KiB",
	} {
		if got := humanize.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
	if got, want := humanize.ExactBytes(20<<30+512), "20GiB (21474836992 bytes)"; got != want {
		t.Errorf("ExactBytes = %s, want %s", got, want)
	}
}
