// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
)

// The deaths and hangs inside calls that find a block job of ours which has to be ended without a
// pivot.

// slowFold is so slow that a fold can be cancelled in its middle, and soon over all the same.
const slowFold = "16MiB/s"

// cancelOfAFoldInCalls is a cancel in the middle of the fold of a complete.
func cancelOfAFoldInCalls() *callTrial {
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			v := c.start(t, "vda", append(c.elsewhere(t), "--bandwidth", slowFold)...)
			c.writes(t)
			v.copy(t)
			c.host.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
			v.untilFolding(t)
			return v.cancelArgs()
		},
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// cancelOfAMirrorInCalls is a cancel in the middle of a move by mirror.
func cancelOfAMirrorInCalls() *callTrial {
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			m := c.mirrorPartly(t, append(c.elsewhere(t), "--verify", "full")...)
			return []string{"migration", "cancel", m.SrcAttachmentID}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// jobLeft is where the daemon dies with a job at work of which it does not know yet.
const jobLeft = "migration_complete.begin_job.after_do"

// completeAnewInCalls is a complete whose daemon has died as its job began. The next one ends that
// job: nobody can tell whether it missed a write.
func completeAnewInCalls() *callTrial {
	settle := func(*testing.T) {}
	return &callTrial{
		guest: func(t *testing.T) *callGuest {
			t.Helper()
			h, c := callHost(t, "--suspend-at-job-start", "always")
			c.runs(t, h)
			return c
		},
		begin: func(c *callGuest, t *testing.T) []string {
			args := c.copyThenComplete(t)
			c.host.restartDaemon(t, c.env, faultPoints+"="+jobLeft+"=kill")
			c.host.hearsRegistry(t)
			settle = c.startsNextDaemon(t)
			return args
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			settle(t)
			return c.migrationEnds(t, answer)
		},
	}
}

// startsNextDaemon has another daemon started as soon as this one has died, beside the test. What
// it returns ends that, with a daemon that does not die by itself.
func (c *callGuest) startsNextDaemon(t *testing.T) (settle func(*testing.T)) {
	t.Helper()
	waits, leave := context.WithCancel(t.Context())
	next := make(chan error, 1)
	go func() {
		if c.host.DaemonDied(waits) != nil {
			next <- waits.Err() // it goes on
			return
		}
		next <- c.host.StartDaemon(t.Context(), c.env)
	}()
	return func(t *testing.T) {
		t.Helper()
		leave()
		switch err := <-next; {
		case context.Cause(waits) == err: //nolint:errorlint // it is that very one
			c.host.restartDaemon(t, c.env)
		case err != nil:
			t.Fatal(err)
		}
	}
}
