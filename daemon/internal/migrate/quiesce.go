// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/retry"
)

// waitShutdown is what a switch waits for that would begin while the daemon stops: the
// next start of the daemon.
const waitShutdown = "shutdown"

// quiescePoll is how often it is looked whether a switch is over: a switch takes some
// tens of milliseconds.
const quiescePoll = 5 * time.Millisecond

// Quiesce is called when the daemon is told to stop, before the connection to libvirt
// is closed: from then on no guest is paused, and it returns when no guest is paused for
// a switch any more, or when ctx ends. So a daemon that stops leaves no guest paused;
// one that is killed leaves it to the next start.
func (m *Manager) Quiesce(ctx context.Context) {
	m.env.stop()
	m.AwaitSwitches(ctx)
}

// AwaitSwitches returns when no guest is paused for a switch, or when ctx ends. New
// switches may begin meanwhile.
func (m *Manager) AwaitSwitches(ctx context.Context) {
	// Its only error is that ctx has ended.
	_, _ = retry.Poll(ctx, quiescePoll, retry.Forever, func() (bool, error) { return !m.anySwitch(), nil })
}

// anySwitch says whether an op is between the pause of its guest and its end, or
// wakes a guest that was saved.
func (m *Manager) anySwitch() bool {
	for _, st := range m.runner.Active() {
		if st.Waiting == "" && st.State != op.StateNeedsOperator && (pauseSteps[st.Step] || wakingSteps[st.Step]) {
			return true
		}
	}
	return false
}

// Switching says whether a migration may be holding the instance paused now: nobody
// else may let it run then.
func (m *Manager) Switching(instanceID string) bool {
	for _, st := range m.runner.Active() {
		if pauseSteps[st.Step] && slices.Contains(st.Op.Keys, request.InstanceKey(instanceID)) {
			return true
		}
	}
	return false
}

// pauseSteps are the steps at which a guest may be paused by us.
var pauseSteps = stepNames(
	toSwitch.begin, "drain", "compare", "name_"+string(onDst), "pivot", "name_"+string(onSrc), toSwitch.end,
	toAbort.begin, abortStep, toAbort.end,
)

// wakingSteps are the steps of package instance at which a guest may be paused by us.
var wakingSteps = stepNames(instance.WakingSteps()...)

// mayPause holds a switch back that was about to begin in a daemon that stops.
func (e *Env) mayPause() error {
	if e.stopping.Err() != nil {
		return op.WaitFor(waitShutdown, errors.New("the daemon is stopping"))
	}
	return nil
}
