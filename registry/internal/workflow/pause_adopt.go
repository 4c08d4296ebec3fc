// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Adopt adopts and cancels a move with all guests paused that hosts know and this database does
// not, because the database was restored from an older backup. saved has the hosts' reports of the
// move by host id; it must have every host that is not fenced. present has the ids of the
// connected hosts. If a guest was to be restored at dst, the volume had moved to dst after the
// backup. Adopt then refuses, because guests at dst and guests that are still saved would use
// different images; use AdoptMoved.
func (s *Pauses) Adopt(ctx context.Context, call store.Call, id string, saved map[string][]api.SavedInstance, present []string) (Pause, error) {
	return s.adopt(ctx, call, "migration.pause_adopt", id, saved, present, func(ctx context.Context, tx *changeTx, v api.Volume, dst api.Location, guests []PauseInstance) (Pause, error) {
		if dst.Path != "" {
			command := shell.Line("volferryctl", "migration", "complete", id)
			return Pause{}, api.Errorf(api.CodeNeedsOperator,
				"cannot wake the guests of migration %s at %s, where the registry has volume %s: some were to be woken with it at %s, so the move had got past that when the history was lost, "+
					"and what was woken then has written to %s, which is the good copy; nothing was changed; `%s` brings volume and guests there",
				id, store.Place(v.Location), v.Name, store.Place(dst), store.Place(dst), command).
				With("location", dst).With(api.DetailCure, command)
		}
		in := api.MigrationTarget{ToPool: v.Location.Pool, PauseAll: true}
		if in.ToPool == "" {
			in.ToPath = v.Location.Path + "-" + id[:8]
		}
		// Its dst is unknown. An unused name stands for it; there is no image.
		unknown := pauseDst(v, id, in)
		t, err := tx.TargetType(ctx, v, api.MigrationRegister{Dst: unknown})
		if err != nil {
			return Pause{}, err
		}
		p, err := tx.insertLostPause(ctx, v, t, id, in, unknown, guests, saved)
		if err != nil {
			return p, err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.adopt", To: string(api.MigrationCancelling), OpID: id},
			map[string]any{"src": v.Location, "instances": len(guests)}); err != nil {
			return p, err
		}
		why := api.Errorf(api.CodeRegistryUnavailable, "the registry was restored from a backup that does not know this migration; what it copied is left where it is")
		return p, tx.setPhase(ctx, p, PauseCancelling, "", why)
	})
}

// AdoptMoved is Adopt for a move that had moved the volume to dst after the database's backup, as
// a guest that was to be restored at dst proves. It makes dst the volume's location again,
// restores all guests there, and keeps src.
func (s *Pauses) AdoptMoved(ctx context.Context, call store.Call, id string, saved map[string][]api.SavedInstance, present []string) (Pause, error) {
	return s.adopt(ctx, call, "migration.pause_adopt_moved", id, saved, present, func(ctx context.Context, tx *changeTx, v api.Volume, dst api.Location, guests []PauseInstance) (Pause, error) {
		if dst.Path == "" {
			return Pause{}, api.Errorf(api.CodeStateForbidden, "cannot complete migration %s of volume %s: no guest was to be woken elsewhere than at %s; `%s` wakes them there",
				id, v.Name, store.Place(v.Location), shell.Line("volferryctl", "migration", "cancel", id))
		}
		if err := validate.Location("destination", dst); err != nil {
			return Pause{}, err
		}
		in := api.MigrationTarget{ToPool: dst.Pool, ToFormat: dst.Format, PauseAll: true}
		if in.ToPool == "" {
			in.ToPath = dst.Path
		}
		t, err := tx.TargetType(ctx, v, api.MigrationRegister{Dst: dst})
		if err != nil {
			return Pause{}, err
		}
		for _, g := range guests {
			if err := tx.checkGuestReaches(ctx, v, t, g, dst); err != nil {
				return Pause{}, err
			}
		}
		p, err := tx.insertLostPause(ctx, v, t, id, in, dst, guests, saved)
		if err != nil {
			return p, err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.adopt", To: string(api.MigrationCompleting), OpID: id},
			map[string]any{"src": v.Location, "dst": dst, "instances": len(guests)}); err != nil {
			return p, err
		}
		if err := tx.flipPause(ctx, p, dst); err != nil {
			return p, err
		}
		return p, tx.setPhase(ctx, p, PauseRestoring, "", nil)
	})
}

func (s *Pauses) adopt(ctx context.Context, call store.Call, what, id string, saved map[string][]api.SavedInstance, present []string,
	adopt func(ctx context.Context, tx *changeTx, v api.Volume, dst api.Location, guests []PauseInstance) (Pause, error),
) (Pause, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return Pause{}, validate.Invalid("%s is no id of a migration", validate.Quote(id))
	}
	return mutate(ctx, s.db, call, what, []any{id, saved}, func(ctx context.Context, tx *changeTx) (Pause, error) {
		if err := tx.checkAdoptable(ctx, id, saved); err != nil {
			return Pause{}, err
		}
		v, dst, err := tx.endsOfSaved(ctx, id, saved)
		if err != nil {
			return Pause{}, err
		}
		guests, err := tx.guestsToPause(ctx, v, present, allPaused)
		if err != nil {
			return Pause{}, err
		}
		if _, err := adopt(ctx, tx, v, dst, guests); err != nil {
			return Pause{}, err
		}
		return pauseByID(ctx, tx, id)
	})
}

// insertLostPause stores the rows of a move that the restored database lacks. All guests get the
// state saved: restoring a guest that was not saved only checks it, and prevents a late save for
// this move. A guest that is neither suspended nor saved any more counts as resumed, so the
// others' memory is not restored.
func (tx *changeTx) insertLostPause(ctx context.Context, v api.Volume, t api.VolumeType, id string, in api.MigrationTarget, dst api.Location, guests []PauseInstance, saved map[string][]api.SavedInstance) (Pause, error) {
	if err := tx.insertPause(ctx, v, t, id, in, dst, guests, allPaused); err != nil {
		return Pause{}, err
	}
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
	return pauseByID(ctx, tx, id)
}

func atRest(saved []api.SavedInstance, instanceID string) bool {
	return slices.ContainsFunc(saved, func(g api.SavedInstance) bool { return g.InstanceID == instanceID && g.AtRest })
}

// checkAdoptable refuses to adopt a known move, or a move without the report of every host that is
// not fenced.
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

// endsOfSaved returns the volume of a move that the restored database lacks, and its dst if a
// guest was to be restored at a location other than the registry's: hosts get such a call only
// after the volume is at dst. It refuses if the hosts disagree about dst, or if the definition of
// a restored guest now names another image.
func (tx *changeTx) endsOfSaved(ctx context.Context, id string, saved map[string][]api.SavedInstance) (v api.Volume, dst api.Location, err error) {
	for _, hostID := range slices.Sorted(maps.Keys(saved)) {
		for _, g := range saved[hostID] {
			if v.ID == "" {
				if v, err = tx.Volume(ctx, g.VolumeID); err != nil {
					return v, dst, err
				}
			}
			refuse := func(format string, args ...any) error {
				return api.Errorf(api.CodeChainChanged, "cannot take up migration %s of volume %s: %s; `%s` on its host says where its guest is, and nothing was changed", id, v.Name,
					fmt.Sprintf(format, args...), shell.Line("volferryctl", "volume", "which", v.Name)).With("instance_id", g.InstanceID)
			}
			// A host's report about another host's guest must not move a volume.
			var own bool
			if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM attachments a JOIN instances i ON i.id = a.instance_id WHERE a.volume_id = ? AND i.id = ? AND i.host_id = ?)",
				v.ID, g.InstanceID, hostID).Scan(&own); err != nil {
				return v, dst, err
			}
			switch {
			case !own:
				return v, dst, refuse("a host says so of instance %s, which is not on it, or does not have the volume", g.InstanceName)
			case g.VolumeID != v.ID:
				return v, dst, refuse("the hosts say that it was of volume %s too, to instance %s", g.VolumeID, g.InstanceName)
			case g.MovedTo != "":
				return v, dst, refuse("instance %s was woken with it at %s, and its definition names %s now", g.InstanceName, store.Place(g.Location), g.MovedTo)
			case g.Location.Path == v.Location.Path && g.Location.Format == v.Location.Format:
			case dst.Path != "" && dst != g.Location:
				return v, dst, refuse("instance %s was to be woken with it at %s, and another one at %s", g.InstanceName, store.Place(g.Location), store.Place(dst))
			default:
				dst = g.Location
			}
		}
	}
	if v.ID == "" {
		return v, dst, api.NotFound("migration", id)
	}
	return v, dst, nil
}
