// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// OutcomeText describes a migration after a successful op, and the next step.
func OutcomeText(m *api.Migration) []string {
	name, src, dst := render.VolumeName(m), render.Location(m.Src), render.Location(m.Dst)
	switch m.State {
	case api.MigrationCompleted:
		return completedText(m)
	case api.MigrationCancelled:
		lines := []string{fmt.Sprintf("Cancelled: volume %s stays at %s; %s.", name, src, fateOfDst(m))}
		if m.Remark != "" {
			lines = append(lines, "  note      "+m.Remark)
		}
		return lines
	case api.MigrationStarted:
		return []string{
			fmt.Sprintf("Started migration %s of volume %s: nothing writes to %s any more.", m.ID, name, m.Src.Path),
			fmt.Sprintf("Destination attachment: %s at %s", render.OrDash(m.DstAttachmentID), m.Dst.Path),
			fmt.Sprintf("Next: copy the data with `%s`, or with any other tool,", shell.Line(Program, "migration", "copy", m.Ref())),
			fmt.Sprintf("then `%s`.", m.CompleteCommand()),
		}
	case api.MigrationCopied:
		return []string{
			fmt.Sprintf("Copied %s from %s to %s.", humanize.Bytes(m.BytesTotal), src, dst),
			fmt.Sprintf("Next: `%s`.", m.CompleteCommand()),
		}
	case api.MigrationError:
		return []string{StandingText(m)}
	default:
		return []string{fmt.Sprintf("Migration %s of volume %s is in state %s.", m.ID, name, m.State)}
	}
}

func fateOfDst(m *api.Migration) string {
	dst := render.Location(m.Dst)
	switch m.DstAfter {
	case api.DstDeleted:
		return "the destination " + dst + " was deleted"
	case api.DstKept:
		return "the destination " + dst + " was kept, and nothing more is written to it"
	default:
		return "nothing more is written to " + dst
	}
}

func completedText(m *api.Migration) []string {
	lines := []string{fmt.Sprintf("Moved volume %s from %s to %s.", render.VolumeName(m), render.Location(m.Src), render.Location(m.Dst))}
	cost := humanize.Bytes(m.BytesTotal)
	if d := duration(m); d > 0 {
		cost += " in " + render.Duration(d) + ", from start to end"
	}
	lines = append(lines, "  moved     "+cost)
	ran := m.StallMS.Start != nil || m.StallMS.Switch != nil
	if ran {
		stalls := fmt.Sprintf("  guest     stalled %s at the start, ", render.Stall(m.StallMS.Start))
		if m.StallMS.Job != nil {
			stalls += fmt.Sprintf("%s when QEMU began to copy, ", render.Stall(m.StallMS.Job))
		}
		lines = append(lines, stalls+render.Stall(m.StallMS.Switch)+" at the switch")
	}
	if m.ExposedSeconds > 0 {
		wrote := "what the guest wrote in that time"
		if !ran {
			wrote = "whatever was written in that time"
		}
		lines = append(lines, fmt.Sprintf("  exposed   %s: %s was in the overlay alone%s", render.Seconds(m.ExposedSeconds), wrote, render.OnShared(m)))
	}
	if m.Remark != "" {
		lines = append(lines, "  note      "+m.Remark)
	}
	switch {
	case m.DeleteSource && m.Error != nil:
		return append(lines, fmt.Sprintf("  source    not deleted: %s: %s", m.Src.Path, m.Error.Message))
	case m.DeleteSource:
		return append(lines, "  source    deleted: "+m.Src.Path)
	}
	return append(lines, "  source    released, not deleted: "+m.Src.Path)
}

// StandingText describes, after a failed op, where the data is and the user's options.
func StandingText(m *api.Migration) string {
	switch m.State {
	case api.MigrationNeedsOperator, api.MigrationOrphaned:
		if cure := m.KnownCure(); cure != "" && m.State == api.MigrationNeedsOperator {
			return fmt.Sprintf("Migration %s of volume %s needs an operator; nothing more will be done unasked.\nNext: %s", m.ID, render.VolumeName(m), cure)
		}
		if m.LedByRegistry() {
			return pausedAdvice(m)
		}
		return fmt.Sprintf("Migration %s of volume %s needs an operator; nothing more will be done unasked.\nSee which copy is authoritative: %s",
			m.ID, render.VolumeName(m), shell.Line(Program, "volume", "which", render.VolumeName(m)))
	case api.MigrationCompleted:
		return fmt.Sprintf("Volume %s is at %s.", render.VolumeName(m), render.Location(m.Dst))
	case api.MigrationCancelled, api.MigrationError:
		return fmt.Sprintf("The move was undone: volume %s is at %s as before.", render.VolumeName(m), render.Location(m.Src))
	case api.MigrationCancelling:
		return cancellingAdvice(m)
	case api.MigrationStarted, api.MigrationCopied:
		goOn, back := m.Cures()
		if m.State == api.MigrationStarted && m.ExternalCopy && !m.ChainChanged() {
			goOn = "repair the copy, then " + goOn
		}
		return fmt.Sprintf("Migration %s of volume %s is in state %s.\nTry again:    %s\nTake it back: %s", m.ID, render.VolumeName(m), m.State, goOn, back)
	default:
	}
	return fmt.Sprintf("Migration %s of volume %s is in state %s.\nTake it back: %s",
		m.ID, render.VolumeName(m), m.State, shell.Line(Program, "migration", "cancel", m.Ref()))
}

// cancelStandingText is StandingText after a failed cancel, which has stopped a running copy.
func cancelStandingText(m *api.Migration) string {
	return fmt.Sprintf("Migration %s of volume %s was not cancelled, and is in state %s.\nTry again: %s", m.ID, render.VolumeName(m), m.State, m.CancelAgain())
}

func cancellingAdvice(m *api.Migration) string {
	if m.Stopped() {
		again, _ := m.Cures()
		return fmt.Sprintf("The cancel of migration %s of volume %s has stopped; the volume will be at %s as before.\nTry again: %s",
			m.ID, render.VolumeName(m), render.Location(m.Src), again)
	}
	return fmt.Sprintf("Migration %s of volume %s is being cancelled: the volume will be at %s as before.\nFollow it: %s",
		m.ID, render.VolumeName(m), render.Location(m.Src), shell.Line(Program, "migration", "watch", m.ID))
}

func duration(m *api.Migration) time.Duration {
	if m.StartedAt == nil || m.FinishedAt == nil {
		return 0
	}
	return m.FinishedAt.Sub(*m.StartedAt)
}

func pausedAdvice(m *api.Migration) string {
	_, at := m.PausedGoal()
	again, _ := m.Cures()
	return fmt.Sprintf("Volume %s is at %s, and nothing was lost. Fix the problem in the message, then try again: %s",
		render.VolumeName(m), render.Location(at), again)
}
