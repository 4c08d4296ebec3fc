// SPDX-License-Identifier: Apache-2.0

package move

// PauseNote is written before the guest is paused: nothing shows later which program paused it.
type PauseNote struct {
	// Resume: the guest ran, or the pause cures the I/O error (a full overlay) that had stopped
	// it, so it is resumed. A guest that a person had paused stays paused.
	Resume bool `json:"resume"`
	// Early means that the op has not paused the guest. The note is then from the flush before the
	// pause, or about a guest that could not be paused, since it was asleep or had crashed.
	Early bool `json:"early,omitempty"`
	FlushingNote
}

// PauseWindow is a pause of the guest, with its first and last step.
type PauseWindow struct {
	Begin, End string
	// Cures: in the pause the guest is taken off its overlay, which cures an I/O error that had
	// stopped it.
	Cures bool
}

var (
	// ToSwitch is the pause of a switch. Overlay and target of the drained job are equal, and a
	// crash loses nothing.
	ToSwitch = PauseWindow{"pause", "resume", true}
	// ToAbort is the pause for the end of a job, which may kill the process of a running guest.
	ToAbort = PauseWindow{"pause_to_abort", "resume_after_abort", true}
)

// FlushingNote is part of the note of each step with a flush that a later flush cannot replace:
// Linux reports lost writes once.
type FlushingNote struct {
	// Flushing: the image may lack writes. Its flush failed, or has no result yet.
	Flushing bool `json:"flushing,omitempty"`
}

// CompareStep is the name of StepCompare of package pause.
const CompareStep = "compare"

// MismatchNote is the note about the comparison of a mirror's two sides.
type MismatchNote struct {
	// Differs is the difference, or empty before the comparison.
	Differs    string `json:"differs,omitempty"`
	PauseEnded bool   `json:"pause_ended,omitempty"`
}
