// SPDX-License-Identifier: Apache-2.0

package instance

// The op kinds of instances.
const (
	kindStart   = "instance_start"
	kindStop    = "instance_stop"
	kindReboot  = "instance_reboot"
	kindPause   = "instance_pause"
	kindUnpause = "instance_unpause"

	kindShelve   = "instance_shelve"
	kindUnshelve = "instance_unshelve"

	kindSuspend = "instance_suspend"
	kindSave    = "instance_save"
	// kindRestore is in older journals: it let its guest run on at once. It is not
	// submitted any more.
	kindRestore       = "instance_restore"
	kindRestorePaused = "instance_restore_paused"
	kindDiscard       = "instance_discard_memory"
	kindResume        = "instance_resume"
)

var kinds = []string{
	kindStart, kindStop, kindReboot, kindPause, kindUnpause, kindShelve, kindUnshelve,
	kindSuspend, kindSave, kindRestore, kindRestorePaused, kindDiscard, kindResume,
}

// pauseKinds are the op kinds of a move with all guests paused; true for the kinds that
// bring an instance back.
var pauseKinds = map[string]bool{
	kindSuspend: false, kindSave: false, kindRestore: true, kindRestorePaused: true, kindDiscard: true, kindResume: true,
}

// The steps whose outputs or end are looked at.
const (
	stepNameAdmit  = "admit"
	stepNameReport = "report"

	stepNameSave    = "save"
	stepNameSuspend = "suspend"
	// stepNameSavedState is the first step of the ops that bring an instance back.
	stepNameSavedState = "rested"
)
