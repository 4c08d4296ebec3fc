// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0ms", 41 * time.Millisecond: "41ms", 8200 * time.Millisecond: "8.2s", 9990 * time.Millisecond: "10s",
		59 * time.Second: "59s", 200 * time.Second: "3m20s", 2 * time.Minute: "2m", 125 * time.Minute: "2h5m", 99 * time.Hour: "4d3h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d ms) = %s, want %s", d.Milliseconds(), got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		-time.Hour: "now", 0: "now", 5 * time.Second: "5s ago", 90 * time.Second: "1m ago", 5 * time.Hour: "5h ago", 49 * time.Hour: "2d ago",
	} {
		if got := Ago(now.Add(-ago), now); got != want {
			t.Errorf("Ago(%s) = %s, want %s", ago, got, want)
		}
	}
	if got := Ago(time.Time{}, now); got != "-" {
		t.Errorf("Ago(zero) = %s", got)
	}
}
