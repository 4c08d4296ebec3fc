// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPaceSeesAGapThatReachesIntoTheSpan(t *testing.T) {
	start := time.Unix(1000, 0)
	h := &History{}
	for _, ms := range []int{0, 1, 2, 150, 151, 152, 400} {
		h.Acks = append(h.Acks, Ack{
			HostTime: start.Add(time.Duration(ms) * time.Millisecond),
			Latency:  time.Duration(ms) * time.Microsecond,
		})
	}
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, tc := range []struct {
		name     string
		from, to int
		want     Pace
	}{
		{"whole stall", 0, 152, Pace{
			Acked: 6, P50: 2 * time.Microsecond, P99: 151 * time.Microsecond, Max: 152 * time.Microsecond,
			LongestGap: 148 * time.Millisecond,
		}},
		{"inside a stall", 50, 60, Pace{LongestGap: 148 * time.Millisecond}},
		{"between stalls", 150, 151, Pace{
			Acked: 2, P50: 150 * time.Microsecond, P99: 150 * time.Microsecond, Max: 151 * time.Microsecond,
			LongestGap: time.Millisecond,
		}},
		{"nothing came after", 400, 700, Pace{
			Acked: 1, P50: 400 * time.Microsecond, P99: 400 * time.Microsecond, Max: 400 * time.Microsecond,
			LongestGap: 300 * time.Millisecond,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, h.Between(at(tc.from), at(tc.to))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
