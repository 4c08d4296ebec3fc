// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// resumeWindow is how long after another guest one may still run on: they are let run
// at once, and each by its own host. The memory of one that comes later is older than
// what the others have written since.
const resumeWindow = 30 * time.Second

// memoryBarred refuses to restore an instance from its memory, or to let run what was
// restored from it, if that is older than what others have written.
func (p Pause) memoryBarred(g PauseInstance, to string, now time.Time) error {
	if g.Discard {
		return nil // nothing of it is old
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
			ran = p.StoppedAt // nobody has said that it stands still
		}
		if ran.IsZero() || to == api.PermitResume && now.Sub(ran) < resumeWindow {
			continue
		}
		return api.Errorf(api.CodeStateForbidden, "the memory of instance %s is older than what instance %s may have written since to the volumes that they share; %s",
			g.Name, o.Name, p.discardAdvice(g)).With("instance_id", o.ID)
	}
	return nil
}

// discardAdvice is how an operator gives the memory of an instance up that may not be restored.
func (p Pause) discardAdvice(g PauseInstance) string {
	return "it can only be started anew, as after a power cut: `" + p.discardCommand() + "`, then `" + startCommand(g) + "`"
}

// callCommand is the call that goes on with the move to the end that it has.
func (p Pause) callCommand() string {
	verb := "complete"
	if p.Phase == PauseCancelling || p.Phase == PauseDone && p.Migration.State == api.MigrationCancelled {
		verb = "cancel"
	}
	return api.ShellLine("volferryctl", "migration", verb, p.Migration.ID)
}

// discardCommand gives up the memory of all guests that may not be restored.
func (p Pause) discardCommand() string { return p.callCommand() + " --discard-memory" }

func startCommand(g PauseInstance) string {
	return api.ShellLine("volferryctl", "instance", "start", g.Name)
}

// cured adds to what has stopped a move the commands that end that, where it is not the call itself
// that is made again (api.Migration.Cures): the memory of a guest that may not be restored any more
// is given up.
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

// hasToStartAnew reports whether an instance has failed and will not go on from its memory any
// more, by the time at which an operator has read so.
func (p Pause) hasToStartAnew(g PauseInstance, now time.Time) bool {
	return g.Error != nil && p.barred(g, now.Add(resumeWindow)) != nil
}

// barred is why what has stopped an instance is not tried again, nil if it may be.
func (p Pause) barred(g PauseInstance, now time.Time) error {
	to := api.PermitRestore
	if g.State == PauseReady {
		to = api.PermitResume
	}
	return p.memoryBarred(g, to, now)
}
