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

// quiescePoll is the interval of looks for the end of a switch, which takes tens of milliseconds.
const quiescePoll = 5 * time.Millisecond

// Quiesce prevents further pauses of guests. It returns when no guest is paused for a switch, or
// when ctx ends. The daemon calls it when it is asked to stop, before it closes the connection to
// libvirt. After a kill the next daemon resumes the guest.
func (m *Monitor) Quiesce(ctx context.Context) {
	m.move.StopPausing()
	m.AwaitSwitches(ctx)
}

// AwaitSwitches returns when no guest is paused for a switch, or when ctx ends. New switches may
// begin.
func (m *Monitor) AwaitSwitches(ctx context.Context) {
	_, _ = retry.Poll(ctx, quiescePoll, retry.Forever, func() (bool, error) { return !m.anySwitch(), nil })
}

// anySwitch reports whether an op may have its guest paused, or wakes a saved guest.
func (m *Monitor) anySwitch() bool {
	for _, st := range m.runner.Active() {
		if st.Waiting == "" && st.State != op.StateNeedsOperator && (plans.PausesGuest(st.Step) || slices.Contains(instance.WakingSteps(), st.Step)) {
			return true
		}
	}
	return false
}

// Switching reports whether a migration may have paused the instance: then nothing else may resume
// it.
func (m *Monitor) Switching(instanceID string) bool {
	for _, st := range m.runner.Active() {
		if plans.PausesGuest(st.Step) && slices.Contains(st.Op.Keys, request.InstanceKey(instanceID)) {
			return true
		}
	}
	return false
}
