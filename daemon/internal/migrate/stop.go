// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// waitShutdown is what a switch waits for that was about to begin when the
// daemon was told to stop: the next start of the daemon.
const waitShutdown = "shutdown"

// stopPoll is how often ComeOut looks: a switch takes some tens of milliseconds.
const stopPoll = 5 * time.Millisecond

// ComeOut is called when the daemon is told to stop, before libvirt's connection
// goes: no guest is paused any more, and those that are get to the end of their
// switch, or back, unless ctx ends first. A daemon that stops leaves no guest
// paused; one that is killed leaves it to the next start.
func (m *Manager) ComeOut(ctx context.Context) {
	m.env.stop()
	for m.switching() && request.Sleep(ctx, stopPoll) == nil {
	}
}

// switching says whether an op is between the pause of its guest and its end, or
// wakes one that was saved.
func (m *Manager) switching() bool {
	for _, st := range m.runner.Active() {
		if st.Waiting == "" && st.State != op.StateNeedsOperator && (duringPause[st.Step] || waking[st.Step]) {
			return true
		}
	}
	return false
}

// duringPause are the steps at which a guest may be paused by us.
var duringPause = stepNames(
	toSwitch.begin, "drain", "compare", "name_"+string(onDst), "pivot", "name_"+string(onSrc), toSwitch.end,
	toAbort.begin, abortStep, toAbort.end,
)

// waking are the steps of package instance at which that may be so.
var waking = stepNames(instance.WakingSteps()...)

// mayPause holds a switch back that was about to begin in a daemon that stops.
func (e *Env) mayPause() error {
	if e.stopping.Err() != nil {
		return op.WaitFor(waitShutdown, errors.New("the daemon is stopping"))
	}
	return nil
}
