// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Permit permits a host to suspend, restore or resume a guest in a move with all guests paused.
// Once a guest that writes to shared volumes was resumed, Permit refuses to restore or resume
// older memory of another guest. A refusal is state_forbidden. A permission is valid only at once;
// later the host must ask again, with another key.
func (s *Pauses) Permit(ctx context.Context, call store.Call, ref string, in api.PausePermit) (api.Migration, error) {
	p, err := s.change(ctx, call, ref, "migration.pause_permit", in, func(ctx context.Context, tx *changeTx, p Pause) error {
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
