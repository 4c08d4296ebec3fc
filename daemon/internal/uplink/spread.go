// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// A registry that is restarted breaks the polls of all hosts in one moment. What each of them does
// next, it does after a time at random, or all would do it in one moment for ever: call again,
// try again while the registry is away, and poll from then on.

// retryEvery is about how often a registry is tried that does not answer, and a fence that is not
// dealt with; on a large site a registry is tried more rarely (retryIn).
const retryEvery = time.Second

// spreadMax bounds how long a host whose poll broke off waits before it calls: the registry takes
// it for silent soon after that (registry/DESIGN.md, section 5).
const spreadMax = 10 * time.Second

// spread is the time over which the hosts of this site call a registry that was restarted: a
// thousand in each second, or so, by how rarely it wants to hear of each.
func (u *Uplink) spread() time.Duration { return min(u.quietFor()/20, spreadMax) }

// retryIn is when a registry is tried again that has not answered.
func (u *Uplink) retryIn() time.Duration { return u.around(max(retryEvery, u.spread())) }

// around is a time at random, from half of d to half as much again.
func (u *Uplink) around(d time.Duration) time.Duration { return u.within(d/2, d+d/2) }

// within is a time at random from a to b.
func (u *Uplink) within(a, b time.Duration) time.Duration {
	return a + time.Duration(u.random()*float64(b-a))
}

// afterBrokenPoll waits until the registry may be polled again. One that has answered until now may
// have been restarted, and has to hear of this host first.
func (u *Uplink) afterBrokenPoll(ctx context.Context) error {
	if !u.Up() {
		return retry.Sleep(ctx, u.retryIn())
	}
	u.polling.Add(1) // or the next look at this host would call, which all hosts may make in one moment
	err := retry.Sleep(ctx, u.within(0, u.spread()))
	u.polling.Add(-1)
	if err != nil {
		return err //nolint:wrapcheck // it is that of ctx
	}
	u.Changed()
	return retry.Sleep(ctx, retryEvery)
}
