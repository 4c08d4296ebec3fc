// SPDX-License-Identifier: Apache-2.0

package unit

import "testing"

func TestAStateIsReadAndExplained(t *testing.T) {
	for _, c := range []struct {
		name, text         string
		up, ended, givenUp bool
		why                string
	}{
		{
			"between two starts that the program ended itself",
			"NRestarts=7\nExecMainStatus=0\nStatusText=failed: overlay_dir /run/x is in memory (tmpfs)\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\n",
			false, true, false, "overlay_dir /run/x is in memory (tmpfs)",
		},
		{
			"killed before it said anything",
			"NRestarts=1\nExecMainStatus=9\nStatusText=starting: uplink\nActiveState=activating\nSubState=auto-restart\nResult=signal\n",
			false, true, false, "it ended by signal (9)",
		},
		{
			"given up", "ExecMainStatus=0\nStatusText=\nActiveState=failed\nSubState=failed\nResult=start-limit-hit\n",
			false, true, true, "it ended by start-limit-hit",
		},
		{"being started", "NRestarts=7\nActiveState=activating\nSubState=start\nResult=success\n", false, false, false, "it ended by success"},
		{"up", "NRestarts=7\nStatusText=ready\nActiveState=active\nSubState=running\nResult=success\n", true, false, false, "it ended by success"},
		{"not installed", "ActiveState=inactive\nSubState=dead\nResult=success\n", false, false, false, "it ended by success"},
	} {
		s := read(c.text)
		if s.Up() != c.up || s.Ended() != c.ended || s.GivenUp() != c.givenUp || s.Why() != c.why {
			t.Errorf("%s: %+v, up %v, ended %v, given up %v, why %q", c.name, s, s.Up(), s.Ended(), s.GivenUp(), s.Why())
		}
	}
	if s := read("NRestarts=7\n"); s.Restarts != 7 {
		t.Errorf("%d restarts, want 7", s.Restarts)
	}
}
