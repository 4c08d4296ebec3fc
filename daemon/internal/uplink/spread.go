// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// A restart of the registry breaks the polls of all hosts at once. Random delays spread the hosts'
// next calls.

// retryEvery is the mean interval of attempts to reach a registry that does not answer, or to
// handle a fence. The hosts of a large site try more rarely (retryIn).
const retryEvery = time.Second

// spreadMax bounds the delay of a host's calls after a broken poll. After a little longer the
// registry considers the host silent (registry/DESIGN.md, section 5).
const spreadMax = 10 * time.Second

// spread returns the time over which this site's hosts call a restarted registry, computed from
// the report interval: about a thousand hosts each second.
func (u *Uplink) spread() time.Duration { return min(u.quietFor()/20, spreadMax) }

func (u *Uplink) retryIn() time.Duration { return u.around(max(retryEvery, u.spread())) }

func (u *Uplink) around(d time.Duration) time.Duration { return u.within(d/2, d+d/2) }

func (u *Uplink) within(a, b time.Duration) time.Duration {
	return a + time.Duration(u.random()*float64(b-a))
}

// afterBrokenPoll waits until the registry may be polled again. If the registry has answered until
// now, it may have been restarted, and needs a report first.
func (u *Uplink) afterBrokenPoll(ctx context.Context) error {
	if !u.Up() {
		return retry.Sleep(ctx, u.retryIn())
	}
	u.polling.Add(1) // otherwise all hosts would report at once
	err := retry.Sleep(ctx, u.within(0, u.spread()))
	u.polling.Add(-1)
	if err != nil {
		return err //nolint:wrapcheck // it is ctx's error
	}
	u.Changed()
	return retry.Sleep(ctx, retryEvery)
}
