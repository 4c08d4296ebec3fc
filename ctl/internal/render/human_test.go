// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 1<<20 - 1: "1MiB", 20 << 30: "20GiB",
		20<<30 + 512: "20GiB", 1<<63 - 1: "8EiB", -2048: "-2KiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
	if got, want := ExactBytes(20<<30+512), "20GiB (21474836992 bytes)"; got != want {
		t.Errorf("ExactBytes = %s, want %s", got, want)
	}
}

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
