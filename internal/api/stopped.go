// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// Stopped reports whether a migration does not go on without an operator: its last operation
// failed or needs an operator, or it has long been unable to go on. A wait for the next call of a
// move step by step is no stop.
func (m *Migration) Stopped() bool {
	return m.StoppedAt != nil || m.State == MigrationNeedsOperator || m.State == MigrationOrphaned
}

// Ref returns the argument of the commands that move a volume step by step: the source's
// attachment, or the migration's id if the volume is unattached.
func (m *Migration) Ref() string {
	if m.SrcAttachmentID != "" {
		return m.SrcAttachmentID
	}
	return m.ID
}

// CopyCommand returns the command that starts or continues the copy. A migration that goes on by
// itself (Composite) then continues to its end.
func (m *Migration) CopyCommand() string {
	return shell.Line("volferryctl", "migration", "copy", m.Ref())
}

// CompleteCommand returns the command that completes the migration.
func (m *Migration) CompleteCommand() string {
	words := []string{"volferryctl", "migration", "complete", m.Ref()}
	if m.DstAttachmentID != "" {
		words = append(words, m.DstAttachmentID)
	}
	return shell.Line(words...)
}

// Cures returns the commands for a stopped migration: again continues the move, or shows what an
// operator must know first, and back cancels it. If a cancel is not the first choice, back is
// empty.
func (m *Migration) Cures() (again, back string) {
	again, back = m.goOn(), m.cancelCommand()
	switch m.State {
	case MigrationStarted, MigrationCopied:
		if m.underSnapshot() {
			return m.KnownCure() + CureSeparator + again, "" // until the merge, a cancel is refused too
		}
		return m.lookFirst() + again, back
	case MigrationCancelling:
		return m.CancelAgain(), ""
	default:
		return again, ""
	}
}

// CancelAgain returns the commands that continue a failed cancel.
func (m *Migration) CancelAgain() string {
	if m.underSnapshot() {
		return m.KnownCure() + CureSeparator + m.cancelCommand()
	}
	return m.lookFirst() + m.cancelCommand()
}

func (m *Migration) goOn() string {
	switch m.State {
	case MigrationNeedsOperator:
		if cure := m.KnownCure(); cure != "" {
			return cure
		}
		if !m.LedByRegistry() {
			return m.whichCommand()
		}
		verb, _ := m.PausedGoal()
		return shell.Line("volferryctl", "migration", verb, m.ID)
	case MigrationOrphaned:
		return m.whichCommand() + CureSeparator + "volferryctl migration abandon --help"
	case MigrationStarted:
		switch {
		case m.ExternalCopy:
			return m.CompleteCommand()
		case m.Composite:
			return m.CopyCommand()
		}
		return m.CopyCommand() + ", and when it is copied " + m.CompleteCommand()
	case MigrationCopied:
		return m.CompleteCommand()
	default:
		return shell.Line("volferryctl", "migration", "show", m.ID)
	}
}

// KnownCure returns the DetailCure of the migration's error, or "".
func (m *Migration) KnownCure() string {
	if m.Error == nil {
		return ""
	}
	cure, _ := m.Error.Details[DetailCure].(string)
	return cure
}

// underSnapshot reports whether the last operation was refused because of another program's
// snapshot. KnownCure merges the snapshot.
func (m *Migration) underSnapshot() bool {
	return m.ChainChanged() && strings.Contains(m.KnownCure(), "virsh blockcommit ")
}

// ChainChanged reports whether the last operation was refused because another program has changed
// the disk. No operation succeeds until the change is reverted.
func (m *Migration) ChainChanged() bool {
	return m.Error != nil && m.Error.Code == CodeChainChanged
}

func (m *Migration) lookFirst() string {
	if !m.ChainChanged() {
		return ""
	}
	return m.whichCommand() + `, mend what it shows (the page Recover, "A definition that was put back" or "A source that was written"), then `
}

func (m *Migration) whichCommand() string {
	return shell.Line("volferryctl", "volume", "which", m.volume())
}

func (m *Migration) cancelCommand() string {
	return shell.Line("volferryctl", "migration", "cancel", m.Ref())
}

// PausedGoal returns the verb that continues a move with all guests paused, if the move needs an
// operator, and the location of its volume. While guests are being resumed, only the commands in
// the error show whether the move completes or cancels.
func (m *Migration) PausedGoal() (verb string, at Location) {
	if m.Phase == string(MigrationCancelling) || strings.HasPrefix(m.KnownCure(), "volferryctl migration cancel ") {
		return "cancel", m.Src
	}
	return "complete", m.Dst
}

// StoppedLine describes a stopped migration in one line: the volume, since when, and why.
func (m *Migration) StoppedLine() string {
	line := "volume " + m.volume() + ": its move stands"
	if m.StoppedAt != nil {
		line += " since " + m.StoppedAt.UTC().Format(time.RFC3339)
	}
	line += fmt.Sprintf(" (%s)", m.State)
	if m.Error != nil {
		line += ": " + strings.Join(strings.Fields(m.Error.Message), " ")
	}
	return line
}

func (m *Migration) volume() string {
	if m.VolumeName != "" {
		return m.VolumeName
	}
	return m.VolumeID
}

// CheckMoves returns the check for stopped migrations, with the commands that continue them.
func CheckMoves(open []Migration) Check {
	check := Check{Name: "moves", Status: "ok", Message: "none has stopped"}
	var lines, advice []string
	for i := range open {
		m := &open[i]
		if !m.Stopped() {
			continue
		}
		again, back := m.Cures()
		lines = append(lines, m.StoppedLine())
		text := m.volume() + ": " + again
		if back != "" {
			text += "  (or take the move back: " + back + ")"
		}
		advice = append(advice, text)
	}
	if len(lines) > 0 {
		check.Status, check.Message, check.Advice = "fail", strings.Join(lines, "; "), strings.Join(advice, "\n")
	}
	return check
}

// CheckOverlays returns the check for guests that are paused or throttled while they write to an
// overlay. Unresumed describes other guests that a move has suspended and libvirt does not resume.
func CheckOverlays(open []Migration, unresumed ...string) Check {
	check := Check{Name: "overlays", Status: "ok", Message: "no guest stands still"}
	var paused, slowed, advice []string
	full := false
	for _, text := range unresumed {
		paused, advice = append(paused, text), append(advice, resumeAdvice)
	}
	for i := range open {
		m := &open[i]
		if m.GuestNotResumed != "" {
			paused = append(paused, m.GuestNotResumed)
			advice = append(advice, m.volume()+": "+m.ResumeAdvice())
		}
		if m.GuestPaused == "" && m.GuestThrottled == "" {
			continue
		}
		full = true
		if m.GuestPaused != "" {
			paused = append(paused, m.GuestPaused)
		}
		if m.GuestThrottled != "" {
			slowed = append(slowed, m.GuestThrottled)
		}
		advice = append(advice, m.volume()+": "+m.WakeAdvice())
	}
	if len(paused)+len(slowed) == 0 {
		return check
	}
	check.Status = "warn"
	var lines []string
	if len(paused) > 0 {
		check.Status = "fail"
		lines = append(lines, humanize.Count(len(paused), "guest")+", standing still: "+strings.Join(paused, "; "))
	}
	if len(slowed) > 0 {
		lines = append(lines, humanize.Count(len(slowed), "guest")+", near a full overlay directory: "+strings.Join(slowed, "; "))
	}
	check.Message = strings.Join(lines, "; ")
	if full {
		advice = append(advice, "docs/how-to/recover.md (The overlay's disk is full)")
	}
	check.Advice = strings.Join(advice, "\n")
	return check
}

// resumeAdvice does not suggest `virsh resume`: after a refusal libvirt mistakes the guest's own
// leases for another guest's, and refuses again.
const resumeAdvice = "end what libvirt names, mostly a guest of another host that has the lease of an image of this guest; this guest goes on by itself within seconds then, and volferryd has to run for that (systemctl start volferryd): virsh resume is refused also then"

// ResumeAdvice returns the advice for a guest that libvirt does not resume.
func (m *Migration) ResumeAdvice() string { return resumeAdvice }

// WakeAdvice returns the advice for a guest that an I/O error has paused, or that is throttled.
func (m *Migration) WakeAdvice() string {
	const see = "see to the overlay's disk"
	if m.State == MigrationStarted || m.State == MigrationCopying {
		return see + ", or take the move back: " + m.cancelCommand()
	}
	if m.State == MigrationCopied {
		return see + ", or " + m.CompleteCommand() + "  (or take the move back: " + m.cancelCommand() + ")"
	}
	return see // the overlay is being folded
}
