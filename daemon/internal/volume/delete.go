// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/internal/api"
)

// Delete deletes a volume that nobody uses, and its bytes, and returns what it
// was. Of a volume that is a block device in no pool only the registry's row
// goes. Ref is its id, name or the beginning of its id. A repeated request gets
// the same answer.
func (g *Manager) Delete(ctx context.Context, opID, ref string) (api.VolumeRegister, error) {
	st, err := g.perform(ctx, request{
		opID: opID, kind: kindDelete, asked: ref, doing: fmt.Sprintf("volume %.64s is being deleted", ref),
		decide: func(ctx context.Context) (input, error) { return g.decideDelete(ctx, ref) },
	})
	if err != nil {
		return api.VolumeRegister{}, err
	}
	var in input
	if err := json.Unmarshal(st.Op.Input, &in); err != nil {
		return in.Volume, fmt.Errorf("read the input of op %s: %w", opID, err)
	}
	return in.Volume, nil
}

func (g *Manager) decideDelete(ctx context.Context, ref string) (input, error) {
	vol, err := g.machine.Registry.Volume(ctx, ref)
	if err != nil {
		return input{}, err
	}
	if err := checkIdle(vol); err != nil {
		return input{}, err
	}
	id, err := g.host(ctx)
	if err != nil {
		return input{}, err
	}
	owner, err := g.machine.Registry.Host(ctx, vol.Host)
	if err != nil {
		return input{}, err
	}
	if owner.ID != id {
		return input{}, api.Errorf(api.CodeNotYourHost, "volume %s is on host %s; run this there", vol.Name, owner.Name)
	}
	in := input{Volume: api.VolumeRegister{ID: vol.ID, Name: vol.Name, Host: id, Location: vol.Location}}
	if err := g.machine.checkUnused(ctx, vol.Location.Path, "cannot delete volume "+vol.Name); err != nil {
		return in, err
	}
	if vol.Location.Pool != "" {
		// A pool that is away says nothing of what it holds, so it is no reason
		// to forget the volume.
		_, err := g.machine.inPool(ctx, vol.Location)
		return in, err
	}
	// A path may lead elsewhere by now than when it became a volume.
	if err := g.rules.CheckPath(vol.Location.Path); err != nil {
		return in, err
	}
	in.Unlink = vol.Location.Path
	if real, err := filepath.EvalSymlinks(in.Unlink); err == nil {
		in.Unlink = real
	}
	return in, nil
}

// checkIdle refuses a volume that somebody works with, by the registry's word.
// The registry checks the same again when it is claimed.
func checkIdle(vol api.Volume) error {
	switch {
	case vol.MigrationID != "":
		return api.Errorf(api.CodeMigrationActive, "cannot delete volume %s: migration %s is moving it; complete or cancel that first",
			vol.Name, vol.MigrationID).With("migration_id", vol.MigrationID)
	case len(vol.Attachments) > 0:
		return api.Errorf(api.CodeVolumeInUse, "cannot delete volume %s: it is attached to instance %s as %s",
			vol.Name, vol.Attachments[0].InstanceID, vol.Attachments[0].Device).With("instance_id", vol.Attachments[0].InstanceID)
	case vol.Status != api.VolumeAvailable:
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot delete volume %s: it is %s", vol.Name, vol.Status).With("status", vol.Status)
	}
	return nil
}
