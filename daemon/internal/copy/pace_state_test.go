// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// A guest with suffering reads only flushes from some moment on. The latency of its flushes without
// the copy is unknown.
func TestThePacerNamesNoLatencyThatItHasNotMeasured(t *testing.T) {
	var guest copy.GuestLatency
	now, job := time.Unix(1, 0), copy.JobProgress{Left: tib, Synchronous: true}
	pacer := copy.NewJobPacer(now, guest, true, 0, 0)
	looks := func(n int, of *copy.Latency, took time.Duration) {
		for range n {
			of.Requests, of.Total = of.Requests+10, of.Total+10*took
			now, job.Left = now.Add(100*time.Millisecond), job.Left-10*miB
			pacer.Look(now, guest, true, job)
			if s := pacer.State(); s.Requests != "" && s.Mean == 0 {
				t.Fatalf("it says %q", s)
			}
		}
	}
	looks(4, &guest.Reads, time.Millisecond)
	looks(4, &guest.Reads, 20*time.Millisecond)
	if s := pacer.State(); s.Doing != copy.PaceGivesWay || s.Requests != "reads" {
		t.Fatalf("it says %q", s)
	}
	looks(30, &guest.Flushes, time.Millisecond)
	if s := pacer.State(); s.Requests == "flushes" {
		t.Errorf("it says %q", s)
	}
}
