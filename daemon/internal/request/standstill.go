// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/shell"
)

// Standstill describes a guest that sleeps or has crashed, with the command that ends this state.
// It returns "" for other guests.
func Standstill(why hv.PauseReason, instance string) string {
	switch why {
	case hv.PauseAsleep:
		return fmt.Sprintf("instance %s is asleep (S3); `%s` wakes it", instance, shell.Line("virsh", "dompmwakeup", "--", instance))
	case hv.PauseCrashed:
		return fmt.Sprintf("the guest of instance %s has crashed and its process is kept; `%s` and then `%s` boot it again, `%s` ends it",
			instance, shell.Line("virsh", "reset", "--", instance), shell.Line("virsh", "resume", "--", instance), shell.Line("virsh", "destroy", "--", instance))
	case hv.PauseUser, hv.PauseIOError, hv.PauseOther:
	}
	return ""
}

// Unsettled describes an instance in hv.StateOther, and the remedy.
func Unsettled(dom *hv.Domain) string {
	if why := Standstill(dom.PauseReason, dom.Name); why != "" {
		return why + "; try again then"
	}
	return fmt.Sprintf("instance %s is neither running, paused nor stopped; try again when it is", dom.Name)
}
