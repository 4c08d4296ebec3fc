// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// AdoptPause takes up a move with all guests paused that hosts know and this database does
// not, because it was restored from an older backup, and leads it to its end at src. Saved
// is what the hosts say of the move, by the id of the host, and has every host that is not
// fenced. If a guest was to be restored at dst, the volume was moved in the lost history:
// the guests at dst and those that are still saved would part, so the move then needs an
// operator. Present are the hosts that are there.
func (s *Store) AdoptPause(ctx context.Context, call store.Call, id string, saved map[string][]api.SavedInstance, present []string) (Pause, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return Pause{}, validate.Invalid("%s is no id of a migration", validate.Quote(id))
	}
	return mutate(ctx, s, call, "migration.pause_adopt", []any{id, saved}, func(ctx context.Context, tx *changeTx) (Pause, error) {
		if err := tx.checkAdoptable(ctx, id, saved); err != nil {
			return Pause{}, err
		}
		v, err := tx.volumeOfSaved(ctx, id, saved)
		if err != nil {
			return Pause{}, err
		}
		guests, err := tx.guestsToPause(ctx, v, present, allPaused)
		if err != nil {
			return Pause{}, err
		}
		in := api.MigrationTarget{ToPool: v.Location.Pool, PauseAll: true}
		if in.ToPool == "" {
			in.ToPath = v.Location.Path + "-" + id[:8]
		}
		// Its dst is not known. A name that nobody has stands for it; nothing is there.
		dst := pauseDst(v, id, in)
		t, err := tx.TargetType(ctx, v, api.MigrationRegister{Dst: dst})
		if err != nil {
			return Pause{}, err
		}
		if err := tx.insertPause(ctx, v, t, id, in, dst, guests, allPaused); err != nil {
			return Pause{}, err
		}
		// All of them are woken: one that was not saved is only looked at by that, and
		// can be saved for this move no more. One that does not rest as it was put to
		// rest has run on, and no memory of the others is restored beside it.
		if err := tx.Exec(ctx, "UPDATE pause_instances SET state = ? WHERE migration_id = ?", PauseSaved, id); err != nil {
			return Pause{}, err
		}
		for _, g := range guests {
			if atRest(saved[g.Host.ID], g.ID) {
				continue
			}
			if err := tx.Exec(ctx, "UPDATE pause_instances SET ran_us = 1 WHERE migration_id = ? AND instance_id = ?", id, g.ID); err != nil {
				return Pause{}, err
			}
		}
		p, err := pauseByID(ctx, tx, id)
		if err != nil {
			return p, err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.adopt", To: string(api.MigrationCancelling), OpID: id},
			map[string]any{"src": v.Location, "instances": len(guests)}); err != nil {
			return p, err
		}
		why := api.Errorf(api.CodeRegistryUnavailable, "the registry was restored from a backup that does not know this migration; what it copied is left where it is")
		if err := tx.setPhase(ctx, p, PauseCancelling, "", why); err != nil {
			return p, err
		}
		return pauseByID(ctx, tx, id)
	})
}

// atRest says whether a host has put an instance to rest and not let it run since.
func atRest(saved []api.SavedInstance, instanceID string) bool {
	return slices.ContainsFunc(saved, func(g api.SavedInstance) bool { return g.InstanceID == instanceID && g.AtRest })
}

// checkAdoptable refuses to judge by less than what every host says.
func (tx *changeTx) checkAdoptable(ctx context.Context, id string, saved map[string][]api.SavedInstance) error {
	var known bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM migrations WHERE id = ?)", id).Scan(&known); err != nil {
		return err
	}
	if known {
		return api.Errorf(api.CodeConflict, "migration %s is known", id)
	}
	type host struct {
		id, name       string
		fenced, behind bool
	}
	scan := ledger.ScanInto(func(h *host) []any { return []any{&h.id, &h.name, &h.fenced, &h.behind} })
	hosts, err := ledger.QueryAll(ctx, tx, scan, "SELECT id, name, fenced, behind FROM hosts ORDER BY name")
	if err != nil {
		return err
	}
	for _, h := range hosts {
		_, heard := saved[h.id]
		switch {
		case h.behind:
			return api.Errorf(api.CodeRegistryUnavailable, "cannot wake the guests of migration %s: host %s has not come back since the registry was restored and may have one of them; start volferryd there, or fence it", id, h.name)
		case !heard && !h.fenced:
			return api.Errorf(api.CodeHypervisorUnavailable, "cannot wake the guests of migration %s: host %s does not answer and may have one of them; look at volferryd on that host, or fence it", id, h.name)
		}
	}
	return nil
}

// volumeOfSaved is the volume that a lost move was about, if no guest of it was to be
// woken elsewhere than where the volume is.
func (tx *changeTx) volumeOfSaved(ctx context.Context, id string, saved map[string][]api.SavedInstance) (v api.Volume, err error) {
	for _, hostID := range slices.Sorted(maps.Keys(saved)) {
		for _, g := range saved[hostID] {
			if v.ID == "" {
				if v, err = tx.Volume(ctx, g.VolumeID); err != nil {
					return v, err
				}
			}
			if g.VolumeID != v.ID || g.Location.Path != v.Location.Path || g.Location.Format != v.Location.Format {
				return v, api.Errorf(api.CodeNeedsOperator,
					"cannot wake the guests of migration %s: instance %s was to be woken with its volume at %s, and by the registry volume %s is at %s: the move had got past that when the history was lost, "+
						"and what was woken then has written to %s, which is the good copy; nothing was changed", id, g.InstanceName, store.Place(g.Location), v.Name, store.Place(v.Location), store.Place(g.Location)).
					With("instance_id", g.InstanceID).With("location", g.Location)
			}
		}
	}
	if v.ID == "" {
		return v, api.Errorf(api.CodeNotFound, "there is no migration %s", validate.Quote(id))
	}
	return v, nil
}
