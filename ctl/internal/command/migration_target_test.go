// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
)

func TestRates(t *testing.T) {
	for text, want := range map[string]int64{"100MiB": 100 << 20, "100MiB/s": 100 << 20, "0": 0, "1048576": 1 << 20} {
		got, err := parseRate(text)
		if err != nil || got != want {
			t.Errorf("parseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]int64{"100B/s": 100, "10KiB": 10 << 10, "65536": 64 << 10, "0/s": 0} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("parseRate(%q) = %d, %v; want %d, which is meant", text, got, err, want)
		}
	}
	// "100", meant in another unit, would make a copy last for years.
	for _, text := range []string{"", "fast", "100Mbit/s", "-1MiB", "100MiB/m", "/s", "100", "100/s", "65535"} {
		if _, err := parseRate(text); err == nil || !strings.Contains(err.Error(), "MiB/s") {
			t.Errorf("parseRate(%q) error = %v, want one that shows a rate in MiB/s", text, err)
		}
	}
}
