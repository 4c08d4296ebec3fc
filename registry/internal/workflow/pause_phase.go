// SPDX-License-Identifier: Apache-2.0

package workflow

// PausePhase is the phase of a Pause.
type PausePhase string

// The phases of a move with all guests paused. From restoring on, the move cannot be cancelled.
const (
	PauseChecking   PausePhase = "checking"
	PauseSuspending PausePhase = "suspending"
	PauseSaving     PausePhase = "saving"
	PauseCopying    PausePhase = "copying"
	PauseRestoring  PausePhase = "restoring"
	PauseCancelling PausePhase = "cancelling"
	PauseDone       PausePhase = "done"
)

// The additional phases of a live move, which is checked and copied before its guests are
// suspended: checking, making, tracking, then copying and swapping alternately, suspending, last,
// saving, and from there as above. Again leads back to tracking, in a new generation.
const (
	PauseMaking   PausePhase = "making"
	PauseTracking PausePhase = "tracking"
	PauseSwapping PausePhase = "swapping"
	PauseAgain    PausePhase = "again"
	PauseLast     PausePhase = "last"
)

// PauseHost is the copy host of a move, or the host of a guest.
type PauseHost struct {
	ID, Name string
	Fenced   bool
}
