// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/retry"
)

// quiescePoll is the interval of looks for the end of a switch, which takes some tens of
// milliseconds.
const quiescePoll = 5 * time.Millisecond

// Quiesce is called when the daemon is asked to stop, before the connection to libvirt is closed:
// from then on no guest is paused. It returns when no guest is paused for a switch any more, or
// when ctx ends. After a kill the next daemon resumes the guest.
func (m *Monitor) Quiesce(ctx context.Context) {
	m.move.StopPausing()
	m.AwaitSwitches(ctx)
}

// AwaitSwitches returns when no guest is paused for a switch, or when ctx ends. New switches may
// begin meanwhile.
func (m *Monitor) AwaitSwitches(ctx context.Context) {
	// The only error is ctx's.
	_, _ = retry.Poll(ctx, quiescePoll, retry.Forever, func() (bool, error) { return !m.anySwitch(), nil })
}

// anySwitch reports whether an op is between the pause of its guest and its end, or wakes a saved
// guest.
func (m *Monitor) anySwitch() bool {
	for _, st := range m.runner.Active() {
		if st.Waiting == "" && st.State != op.StateNeedsOperator && (plans.PausesGuest(st.Step) || slices.Contains(instance.WakingSteps(), st.Step)) {
			return true
		}
	}
	return false
}

// Switching reports whether a migration may have paused the instance now: then nothing else may
// resume it.
func (m *Monitor) Switching(instanceID string) bool {
	for _, st := range m.runner.Active() {
		if plans.PausesGuest(st.Step) && slices.Contains(st.Op.Keys, request.InstanceKey(instanceID)) {
			return true
		}
	}
	return false
}
