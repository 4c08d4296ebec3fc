// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func move(maxPause time.Duration, hosts ...workflow.LiveHost) *workflow.Pause {
	p := &workflow.Pause{Live: &workflow.Live{UnitBytes: 64 << 10, MaxPause: maxPause, Hosts: hosts}}
	p.Migration.VolumeName = "db"
	return p
}

func host(id string, dirty, copied int64, took time.Duration) workflow.LiveHost {
	return workflow.LiveHost{PauseHost: workflow.PauseHost{ID: id, Name: "hv-" + id}, Dirty: dirty, Copied: copied, Took: took}
}

func TestAPauseThatCannotBeKeptIsRefusedBeforeAnythingIsDone(t *testing.T) {
	a, b := host("a", 0, 0, 0), host("b", 0, 0, 0)
	slow := map[string]standstill{"a": {1 << 30, 10 * time.Second, 5 * time.Second}, "b": {64 << 30, 60 * time.Second, 40 * time.Second}}
	for name, tc := range map[string]struct {
		maxPause time.Duration
		ram      map[string]standstill
		refused  bool
	}{
		"too long for one": {30 * time.Second, slow, true},
		"long enough":      {102 * time.Second, slow, false},
		"a second less":    {101 * time.Second, slow, true},
		"nothing is known": {time.Second, map[string]standstill{}, false},
	} {
		why := tooMuchRAM(move(tc.maxPause, a, b), tc.ram)
		if (why != nil) != tc.refused {
			t.Errorf("%s: %v, want refused: %t", name, why, tc.refused)
		}
		if why != nil && (why.Code != api.CodePauseTooLong || !strings.Contains(why.Message, "host hv-b needs about 1m0s to save") || !strings.Contains(why.Message, "--max-pause 1m43s")) {
			t.Errorf("%s: %v", name, why)
		}
	}
}

func TestTheGuestsArePausedWhenTheRestAndTheirRAMFitIn(t *testing.T) {
	const units = 1000
	dirty := int64(units * 64 << 10)
	ram := map[string]standstill{"a": {1 << 30, 10 * time.Second, 5 * time.Second}}
	for name, tc := range map[string]struct {
		host     workflow.LiveHost
		maxPause time.Duration
		want     bool
	}{
		"a few units":               {host("a", 63*64<<10, 0, 0), time.Second, true},
		"nothing was copied yet":    {host("a", dirty, 0, 0), time.Hour, false},
		"the copy beside the save":  {host("a", dirty, dirty, 10*time.Second), 17 * time.Second, true},
		"the copy beyond the save":  {host("a", dirty, dirty, 11*time.Second), 17 * time.Second, false},
		"the RAM alone is too long": {host("a", dirty, dirty, time.Second), 16 * time.Second, false},
	} {
		if got := mayPause(move(tc.maxPause, tc.host).Live, ram); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWritersThatOutrunTheCopyAreNamedWithWhatHelps(t *testing.T) {
	p := move(30*time.Second, host("a", 3<<20, 2<<20, 4*time.Second), host("b", 5<<20, 2<<20, time.Second))
	p.Live.Slow = workflow.LiveStalledRounds
	for throttled, advice := range map[bool]string{false: "--throttle-writers", true: "did not change when they were held back"} {
		p.Request.ThrottleWriters = throttled
		if why := outrun(p); why.Code != api.CodePauseTooLong || !strings.Contains(why.Message, "(8MiB after the last one, which copied 4MiB in 4s)") || !strings.Contains(why.Message, advice) {
			t.Errorf("throttled %t: %v", throttled, why)
		}
	}
}

func TestWhatAHostSaysOfItsRAMIsReadOrLeftOut(t *testing.T) {
	for answer, want := range map[string]int64{
		`{"live_host":{"instances":[{"instance_id":"i","memory_bytes":7}]}}`: 7, `{"live_host":{}}`: 0, `{`: 0, ``: 0,
	} {
		if got := memories([]byte(answer))["i"]; got != want {
			t.Errorf("%s: %d, want %d", answer, got, want)
		}
	}
}
