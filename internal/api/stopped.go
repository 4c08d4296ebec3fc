// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"time"
)

// Stopped reports whether nothing more is done for the migration until somebody asks for it,
// because its last operation failed or needs an operator, or whether it cannot go on by itself for
// long. A migration that waits for the next call of whoever makes it step by step has not stopped.
func (m *Migration) Stopped() bool {
	return m.StoppedAt != nil || m.State == MigrationNeedsOperator || m.State == MigrationOrphaned
}

// Ref is the argument of the commands that move a volume step by step: the source's
// attachment, or the id of the migration if the volume is not attached.
func (m *Migration) Ref() string {
	if m.SrcAttachmentID != "" {
		return m.SrcAttachmentID
	}
	return m.ID
}

// CopyCommand is the command that copies, and that goes on with the copy of a migration whose copy
// has failed. A Composite migration goes on from there to its end.
func (m *Migration) CopyCommand() string {
	return ShellLine("volferryctl", "migration", "copy", m.Ref())
}

// CompleteCommand is the command that completes the migration.
func (m *Migration) CompleteCommand() string {
	words := []string{"volferryctl", "migration", "complete", m.Ref()}
	if m.DstAttachmentID != "" {
		words = append(words, m.DstAttachmentID)
	}
	return ShellLine(words...)
}

// Cures returns the commands that end the standstill of a migration that has stopped: again
// goes on with the move to its end, or shows what has to be known before that, and back takes
// the move back. Back is empty where that is not the operator's first choice.
func (m *Migration) Cures() (again, back string) {
	again, back = m.goOn(), m.cancelCommand()
	switch m.State {
	case MigrationStarted, MigrationCopied:
		if m.underSnapshot() {
			return m.KnownCure() + CureSeparator + again, "" // a cancel is refused for the same reason until then
		}
		return m.lookFirst() + again, back
	case MigrationCancelling:
		return m.CancelAgain(), ""
	default:
		return again, ""
	}
}

// CancelAgain returns the commands that go on with a cancel that failed.
func (m *Migration) CancelAgain() string {
	if m.underSnapshot() {
		return m.KnownCure() + CureSeparator + m.cancelCommand()
	}
	return m.lookFirst() + m.cancelCommand()
}

// goOn returns the commands that bring a migration that has stopped to its end, in their order.
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
		return ShellLine("volferryctl", "migration", verb, m.ID)
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
		return ShellLine("volferryctl", "migration", "show", m.ID)
	}
}

// KnownCure returns the commands that the error of the migration says end its standstill, "" if it
// does not know.
func (m *Migration) KnownCure() string {
	if m.Error == nil {
		return ""
	}
	cure, _ := m.Error.Details[DetailCure].(string)
	return cure
}

// underSnapshot reports whether the last operation was refused because of a foreign snapshot, which
// the commands of its error merge.
func (m *Migration) underSnapshot() bool {
	return m.ChainChanged() && strings.Contains(m.KnownCure(), "virsh blockcommit ")
}

// ChainChanged reports whether the last operation of the migration was refused because somebody
// else has changed the disk: none succeeds before the change is taken back.
func (m *Migration) ChainChanged() bool {
	return m.Error != nil && m.Error.Code == CodeChainChanged
}

// lookFirst is what comes before any other command if the chain was changed, else empty.
func (m *Migration) lookFirst() string {
	if !m.ChainChanged() {
		return ""
	}
	return m.whichCommand() + `, mend what it shows (the page Recover, "A definition that was put back" or "A source that was written"), then `
}

func (m *Migration) whichCommand() string {
	return ShellLine("volferryctl", "volume", "which", m.volume())
}

func (m *Migration) cancelCommand() string {
	return ShellLine("volferryctl", "migration", "cancel", m.Ref())
}

// PausedGoal returns, of a move with all guests paused that needs an operator, the verb that goes
// on with it and where its volume is. While its guests are let run the phase does not say which;
// the commands do.
func (m *Migration) PausedGoal() (verb string, at Location) {
	if m.Phase == string(MigrationCancelling) || strings.HasPrefix(m.KnownCure(), "volferryctl migration cancel ") {
		return "cancel", m.Src
	}
	return "complete", m.Dst
}

// StoppedLine says of a migration that has stopped which volume it moves, since when it
// stands, and why, in one line.
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

// CheckMoves checks that no migration has stopped; those that have are listed with the commands
// that end the standstill.
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

// CheckOverlays checks that no guest stands still, or is slowed down, while its writes go to an
// overlay; those are listed with what ends it. Unresumed says of other guests that a move has
// suspended why libvirt does not resume them.
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
		lines = append(lines, Count(len(paused), "guest")+", standing still: "+strings.Join(paused, "; "))
	}
	if len(slowed) > 0 {
		lines = append(lines, Count(len(slowed), "guest")+", near a full overlay directory: "+strings.Join(slowed, "; "))
	}
	check.Message = strings.Join(lines, "; ")
	if full {
		advice = append(advice, "docs/how-to/recover.md (The overlay's disk is full)")
	}
	check.Advice = strings.Join(advice, "\n")
	return check
}

// resumeAdvice says what ends that libvirt does not resume a guest. After a refusal libvirt takes
// the guest's own leases for the leases of another guest, and refuses each `virsh resume`.
const resumeAdvice = "end what libvirt names, mostly a guest of another host that has the lease of an image of this guest; this guest goes on by itself within seconds then, and volferryd has to run for that (systemctl start volferryd): virsh resume is refused also then"

// ResumeAdvice says, of a migration whose guest libvirt does not resume, what ends that.
func (m *Migration) ResumeAdvice() string { return resumeAdvice }

// WakeAdvice says, of a migration whose guest an I/O error has paused, or which is slowed down,
// what ends that: what can be done about the overlay's storage is in GuestPaused.
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
