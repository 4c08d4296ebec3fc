// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// resumeWindow is how long after the first guest the others may still be resumed: all are resumed
// at once, but by different hosts. Later, a guest's memory counts as older than the others'
// writes.
const resumeWindow = 30 * time.Second

// memoryBarred refuses to restore or resume a guest if its memory is older than another guest's
// writes to a shared volume, or if the move continued without the guest.
func (p Pause) memoryBarred(g PauseInstance, to string, now time.Time) error {
	if g.Discard {
		return nil // the memory is discarded, not restored
	}
	if g.Lost {
		return api.Errorf(api.CodeStateForbidden, "the memory of instance %s is not restored: its host %s was fenced, and migration %s of volume %s went on without it; %s",
			g.Name, g.Host.Name, p.Migration.ID, p.Migration.VolumeName, p.discardAdvice(g))
	}
	for _, o := range p.Instances {
		if o.ID == g.ID || !o.Writes {
			continue
		}
		ran := o.RanAt
		if o.State == PausePending || o.State == PauseChecked {
			ran = p.StoppedAt // the guest may have continued to run
		}
		if ran.IsZero() || to == api.PermitResume && now.Sub(ran) < resumeWindow {
			continue
		}
		return api.Errorf(api.CodeStateForbidden, "the memory of instance %s is older than what instance %s may have written since to the volumes that they share; %s",
			g.Name, o.Name, p.discardAdvice(g)).With("instance_id", o.ID)
	}
	return nil
}

func (p Pause) discardAdvice(g PauseInstance) string {
	return "it can only be started anew, as after a power cut: `" + p.discardCommand() + "`, then `" + startCommand(g) + "`"
}

// callCommand returns the operator's command that continues the move: complete or cancel.
func (p Pause) callCommand() string {
	verb := "complete"
	if p.Phase == PauseCancelling || p.Phase == PauseDone && p.Migration.State == api.MigrationCancelled {
		verb = "cancel"
	}
	return shell.Line("volferryctl", "migration", verb, p.Migration.ID)
}

func (p Pause) discardCommand() string { return p.callCommand() + " --discard-memory" }

func startCommand(g PauseInstance) string {
	return shell.Line("volferryctl", "instance", "start", g.Name)
}

// cured adds the operator's commands to the error that blocks a move. They discard memory that may
// not be restored, or else only repeat the call (api.Migration.Cures).
func (p Pause) cured(stops *api.Error, now time.Time) *api.Error {
	var commands []string
	for _, g := range p.Instances {
		if p.hasToStartAnew(g, now) {
			commands = append(commands, startCommand(g))
		}
	}
	call := p.callCommand()
	if len(commands) > 0 && p.Error == nil {
		call = p.discardCommand()
	} else {
		commands = nil
	}
	out := api.Errorf(stops.Code, "%s", stops.Message)
	out.Details = maps.Clone(stops.Details)
	return out.With(api.DetailCure, strings.Join(slices.Insert(commands, 0, call), api.CureSeparator))
}

// hasToStartAnew reports whether an instance has failed and its memory may not be used
// resumeWindow from now, about when an operator reads the error.
func (p Pause) hasToStartAnew(g PauseInstance, now time.Time) bool {
	return g.Error != nil && p.barred(g, now.Add(resumeWindow)) != nil
}

func (p Pause) barred(g PauseInstance, now time.Time) error {
	to := api.PermitRestore
	if g.State == PauseReady {
		to = api.PermitResume
	}
	return p.memoryBarred(g, to, now)
}
