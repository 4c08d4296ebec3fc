// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// resumeWindow is how long after another guest one may still run on: they are let run
// at once, and each by its own host. The memory of one that comes later is older than
// what the others have written since.
const resumeWindow = 30 * time.Second

// PermitPause answers a host that is about to suspend, restore or resume a guest in a move
// with all guests paused. The rule: once a guest that writes to shared volumes has run on,
// no older memory of another guest is restored or resumed. A refusal is state_forbidden. A
// permission is good for this moment only: if it was not used, the host asks again, under
// another key.
func (s *Store) PermitPause(ctx context.Context, call store.Call, ref string, in api.PausePermit) (api.Migration, error) {
	p, err := s.changePause(ctx, call, ref, "migration.pause_permit", in, func(ctx context.Context, tx *changeTx, p Pause) error {
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return err
		}
		for _, g := range p.Instances {
			switch {
			case g.ID != in.InstanceID:
				continue
			case g.Host.ID != hostID:
				return api.Errorf(api.CodeNotYourHost, "instance %s of migration %s is host %s's", g.Name, p.Migration.ID, g.Host.Name)
			}
			return tx.permit(ctx, p, g, in.To)
		}
		return api.Errorf(api.CodeNotFound, "migration %s has no instance %s", p.Migration.ID, validate.Quote(in.InstanceID))
	})
	return p.Migration, err
}

func (tx *changeTx) permit(ctx context.Context, p Pause, g PauseInstance, to string) error {
	phases := map[string]bool{
		api.PermitSuspend: p.Phase == PauseSuspending && g.State == PauseChecked,
		api.PermitRestore: p.Phase != PauseDone && (g.State == PauseSuspended || g.State == PauseSaved || g.State == PauseReady),
		api.PermitResume:  p.Resuming && g.State == PauseReady,
	}
	may, known := phases[to]
	switch {
	case !known:
		return validate.Invalid("a host may not ask to %s a guest", validate.Quote(to))
	case g.Lost && !g.Discard:
		return p.memoryBarred(g, to, tx.At)
	case !may:
		return api.Errorf(api.CodeStateForbidden, "instance %s may not %s: migration %s of volume %s is %s, and the instance is %s in it",
			g.Name, to, p.Migration.ID, p.Migration.VolumeName, p.phaseShown(), g.State).With("phase", p.Phase)
	case to == api.PermitSuspend:
		return nil
	}
	if err := p.memoryBarred(g, to, tx.At); err != nil {
		return err
	}
	if to == api.PermitRestore || !g.RanAt.IsZero() {
		return nil
	}
	if err := tx.Exec(ctx, "UPDATE pause_instances SET ran_us = ? WHERE migration_id = ? AND instance_id = ?", tx.At.UnixMicro(), p.Migration.ID, g.ID); err != nil {
		return err
	}
	return tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.instance", From: g.State, To: phaseResuming},
		map[string]any{"instance_id": g.ID, "instance_name": g.Name, "instance_host": g.Host.Name, "phase": p.Phase})
}

// memoryBarred refuses to restore an instance from its memory, or to let run what was
// restored from it, if that is older than what others have written.
func (p Pause) memoryBarred(g PauseInstance, to string, now time.Time) error {
	if g.Discard {
		return nil // nothing of it is old
	}
	if g.Lost {
		return api.Errorf(api.CodeStateForbidden, "the memory of instance %s is not restored: its host %s was fenced, and migration %s of volume %s went on without it; %s",
			g.Name, g.Host.Name, p.Migration.ID, p.Migration.VolumeName, p.discardAdvice())
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
			g.Name, o.Name, p.discardAdvice()).With("instance_id", o.ID)
	}
	return nil
}
