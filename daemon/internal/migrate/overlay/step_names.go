// SPDX-License-Identifier: Apache-2.0

package overlay

// These steps change the definition to the new image of a switch.
const (
	NameDstStep           = "name_dst"
	NameDstAfterPivotStep = "name_dst_after_pivot" // after a job that writes in the background
	NameDstWhileOffStep   = "name_dst_while_off"
	NameSrcStep           = "name_src"
)

// AdmitCommittedStep is the first step of a cancel after another program has committed the
// overlay.
const AdmitCommittedStep = "admit_committed"
