// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Saved returns the journal's records of a move with all guests paused. They have each domain that
// this host was asked to suspend, save or restore. A registry restored from a backup may lack
// them.
func (m *Manager) Saved(ctx context.Context, migrationID string) ([]api.SavedInstance, error) {
	if _, err := uuid.Parse(migrationID); err != nil {
		return nil, api.Errorf(api.CodeInvalidArgument, "the migration is %.60q, which is no id", migrationID)
	}
	doms, unreadable, err := hv.Readable(m.ports.Domains.Domains(ctx))
	if err != nil {
		return nil, api.Errorf(api.CodeHypervisorUnavailable, "cannot look at the domains: %v", err)
	}
	for _, d := range unreadable { // the journal has the answer
		doms = append(doms, hv.Domain{ID: d.ID, Name: d.Name})
	}
	out := []api.SavedInstance{}
	for i := range doms {
		in := &memory.PauseInput{MigrationID: migrationID}
		in.InstanceID = doms[i].ID
		is := api.SavedInstance{InstanceID: doms[i].ID, InstanceName: doms[i].Name}
		if err := m.env.Memory.PauseOps(ctx, in, func(st op.Status) error {
			var of memory.PauseInput
			err := json.Unmarshal(st.Op.Input, &of)
			is.VolumeID, is.Location, in.Device = of.VolumeID, of.Location, of.Device
			return err
		}); err != nil {
			return nil, err
		}
		if is.VolumeID == "" {
			continue
		}
		if is.Asleep, err = m.ports.Guards.Has(is.InstanceID, in.Owner()); err != nil {
			return nil, err
		}
		is.AtRest = is.Asleep && doms[i].State != hv.StateRunning
		if disk := doms[i].ConfigDisk(in.Device); !is.Asleep && disk != nil && len(disk.Chain) > 0 && disk.Chain[0].Path != is.Location.Path {
			is.MovedTo = disk.Chain[0].Path
		}
		out = append(out, is)
	}
	return out, nil
}

// OrphanedSave returns a note about an instance with a guard of a move that the registry does not
// know, or "".
func OrphanedSave(inst api.Instance, guards []guard.Guard) string {
	for _, held := range guards {
		id, ok := strings.CutPrefix(held.Owner, guard.OwnerPause)
		if !ok || inst.LockedBy == id {
			continue
		}
		return fmt.Sprintf("it was saved for migration %s, which does not have it by the registry's word: the registry was restored from a backup, or the move ended without it; "+
			"`%s` at the registry wakes it, with its volume where the registry has it, if all guests of the volume can be", id, shell.Line("volferryctl", "migration", "cancel", id))
	}
	return ""
}
