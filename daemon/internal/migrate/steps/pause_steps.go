// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"errors"

	"github.com/volferry/volferry/internal/op"
)

// waitShutdown is what a switch waits for that would begin while the daemon stops: the
// next start of the daemon.
const waitShutdown = "shutdown"

// pauseSteps are the steps at which a guest may be paused by us.
var pauseSteps = stepNames(
	toSwitch.begin, "drain", "compare", "name_"+string(OnDst), "pivot", "name_"+string(OnSrc), toSwitch.end,
	toAbort.begin, abortStep, toAbort.end,
)

// PausesGuest says whether a guest may be paused by us at the step with this name.
func PausesGuest(step string) bool { return pauseSteps[step] }

// StopPausing is called when the daemon is told to stop: no guest is paused any more.
func (e *Env) StopPausing() { e.stop() }

// mayPause holds back a switch that would begin while the daemon stops.
func (e *Env) mayPause() error {
	if e.stopping.Err() != nil {
		return op.WaitFor(waitShutdown, errors.New("the daemon is stopping"))
	}
	return nil
}

func stepNames(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}
