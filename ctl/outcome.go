// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

// printMigration says what became of a migration whose op is done.
func (s *session) printMigration(a answer) error {
	var m api.Migration
	if err := a.decode("migration", &m); err != nil {
		return err
	}
	return s.printResult(a, m.ID, outcome(&m)...)
}

// outcome is a few lines on where a migration stands after an op went well, and
// what comes next.
func outcome(m *api.Migration) []string {
	name, src, dst := volumeName(m), place(m.Src), place(m.Dst)
	switch m.State {
	case api.MigrationCompleted:
		return moved(m)
	case api.MigrationCancelled:
		lines := []string{fmt.Sprintf("Cancelled: volume %s stays at %s; nothing more is written to %s.", name, src, dst)}
		if m.Remark != "" {
			lines = append(lines, "  note      "+m.Remark)
		}
		return lines
	case api.MigrationStarted:
		return []string{
			fmt.Sprintf("Started migration %s of volume %s: nothing writes to %s any more.", m.ID, name, m.Src.Path),
			fmt.Sprintf("Destination attachment: %s at %s", render.OrDash(m.DstAttachmentID), m.Dst.Path),
			fmt.Sprintf("Next: copy the data with '%s migration copy %s', or with any other tool,", programName, handle(m)),
			fmt.Sprintf("then '%s'.", completeCommandLine(m)),
		}
	case api.MigrationCopied:
		return []string{
			fmt.Sprintf("Copied %s from %s to %s.", api.Bytes(m.BytesTotal), src, dst),
			fmt.Sprintf("Next: '%s'.", completeCommandLine(m)),
		}
	default:
		return []string{fmt.Sprintf("Migration %s of volume %s is in state %s.", m.ID, name, m.State)}
	}
}

// moved tells of a completed migration: from where to where, what it cost, and
// what became of the source.
func moved(m *api.Migration) []string {
	lines := []string{fmt.Sprintf("Moved volume %s from %s to %s.", volumeName(m), place(m.Src), place(m.Dst))}
	cost := api.Bytes(m.BytesTotal)
	if d := took(m); d > 0 {
		cost += " in " + render.Duration(d) + ", from start to end"
	}
	lines = append(lines, "  moved     "+cost)
	ran := m.StallMS.Start != nil || m.StallMS.Switch != nil
	if ran {
		lines = append(lines, fmt.Sprintf("  guest     stalled %s at the start, %s at the switch", stall(m.StallMS.Start), stall(m.StallMS.Switch)))
	}
	if m.ExposedSeconds > 0 {
		wrote := "what the guest wrote in that time"
		if !ran {
			wrote += ", if it ran,"
		}
		lines = append(lines, fmt.Sprintf("  exposed   %s: %s was in the overlay alone", seconds(m.ExposedSeconds), wrote))
	}
	switch {
	case m.DeleteSource && m.Error != nil:
		return append(lines, fmt.Sprintf("  source    not deleted: %s: %s", m.Src.Path, m.Error.Message))
	case m.DeleteSource:
		return append(lines, "  source    deleted: "+m.Src.Path)
	}
	return append(lines, "  source    released, not deleted: "+m.Src.Path)
}

// standing tells, after an op that failed, where the data is and what can be done.
func standing(m *api.Migration) string {
	again := ""
	switch m.State {
	case api.MigrationNeedsOperator, api.MigrationOrphaned:
		if m.Method == methodSave {
			return pausedAdvice(m)
		}
		return fmt.Sprintf("Migration %[1]s of volume %[3]s needs an operator; nothing more will be done unasked.\nSee which copy is authoritative: %[2]s volume which %[3]s",
			m.ID, programName, volumeName(m))
	case api.MigrationCompleted:
		return fmt.Sprintf("Volume %s is at %s.", volumeName(m), place(m.Dst))
	case api.MigrationCancelled, api.MigrationError:
		return fmt.Sprintf("Everything was taken back: volume %s is at %s as before.", volumeName(m), place(m.Src))
	case api.MigrationCancelling:
		return beingCancelled(m)
	case api.MigrationStarted:
		if m.ExternalCopy {
			again = "\nTry again:    mend the copy, then " + completeCommandLine(m)
			break
		}
		again = fmt.Sprintf("\nTry again:    %s migration copy %s", programName, handle(m))
	case api.MigrationCopied:
		again = "\nTry again:    " + completeCommandLine(m)
	default:
	}
	return fmt.Sprintf("Migration %[2]s of volume %[6]s is in state %[3]s.%[5]s\nTake it back: %[1]s migration cancel %[4]s",
		programName, m.ID, m.State, handle(m), again, volumeName(m))
}

// beingCancelled is how a migration stands that somebody is cancelling: there is
// nothing to do but to look on.
func beingCancelled(m *api.Migration) string {
	return fmt.Sprintf("Migration %[2]s of volume %[3]s is being cancelled: the volume will be at %[4]s as before.\nFollow it: %[1]s migration watch %[2]s",
		programName, m.ID, volumeName(m), place(m.Src))
}

func completeCommandLine(m *api.Migration) string {
	line := fmt.Sprintf("%s migration complete %s", programName, handle(m))
	if m.DstAttachmentID != "" {
		line += " " + m.DstAttachmentID
	}
	return line
}

func volumeName(m *api.Migration) string {
	if m.VolumeName != "" {
		return m.VolumeName
	}
	return m.VolumeID
}

// place is a location as a person names it: pool/name, or a path.
func place(l api.Location) string {
	if l.Pool != "" && l.Name != "" {
		return l.Pool + "/" + l.Name
	}
	if l.Path == "" {
		return render.OrDash(l.Pool)
	}
	return l.Path
}

// took is how long a migration lasted, 0 where it is not over.
func took(m *api.Migration) time.Duration {
	if m.StartedAt == nil || m.FinishedAt == nil {
		return 0
	}
	return m.FinishedAt.Sub(*m.StartedAt)
}

func stall(ms *float64) string {
	if ms == nil {
		return "not at all"
	}
	return render.Duration(time.Duration(*ms * float64(time.Millisecond)))
}

func seconds(s float64) string {
	return render.Duration(time.Duration(s * float64(time.Second)))
}
