// SPDX-License-Identifier: Apache-2.0

package subject

// The op kinds of instances.
const (
	KindStart   = "instance_start"
	KindStop    = "instance_stop"
	KindReboot  = "instance_reboot"
	KindPause   = "instance_pause"
	KindUnpause = "instance_unpause"
	KindRepair  = "instance_repair"

	KindShelve   = "instance_shelve"
	KindUnshelve = "instance_unshelve"

	KindSuspend       = "instance_suspend"
	KindSave          = "instance_save"
	KindRestorePaused = "instance_restore_paused"
	KindDiscard       = "instance_discard_memory"
	KindResume        = "instance_resume"
)

// Kinds are all op kinds of instances.
var Kinds = []string{
	KindStart, KindStop, KindReboot, KindPause, KindUnpause, KindRepair, KindShelve, KindUnshelve,
	KindSuspend, KindSave, KindRestorePaused, KindDiscard, KindResume,
}

// StepNameAdmit is the first step of every op kind except those that bring a saved instance back.
// It may still refuse the op.
const StepNameAdmit = "admit"

// The names of steps that other code uses.
const (
	stepNameReport = "report"

	StepNameSave    = "save"
	StepNameSuspend = "suspend"
	// StepNameSavedState is the first step of the ops that bring a saved instance back.
	StepNameSavedState = "saved_state"
)

// WakeKinds bring an instance back in a move with all guests paused. The registry decides first
// where the volume is.
var WakeKinds = []string{KindRestorePaused, KindDiscard, KindResume}
