// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Delete deletes an unused volume and its image, and returns the volume as it was. It keeps a
// block device outside pools. With force it also deletes a volume with incomplete bytes (creating,
// deleting, error), but never an attached or moving volume.
func (m *Manager) Delete(ctx context.Context, opID, ref string, force bool) (api.VolumeRegister, error) {
	body := any(ref)
	if force {
		body = forcedDeleteBody{Volume: ref, Force: true}
		vol, gone, err := m.endParkedOps(ctx, opID, ref)
		if gone || err != nil {
			return vol, request.Refused(err)
		}
	}
	st, err := m.perform(ctx, request.Request{
		OpID: opID, Kind: kindDelete, Body: body,
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideDelete(ctx, ref, force) },
	}, fmt.Sprintf("volume %.64s is being deleted", ref))
	if err != nil {
		return api.VolumeRegister{}, err
	}
	return deletedBy(st.Op)
}

type forcedDeleteBody struct {
	Volume string `json:"volume"`
	Force  bool   `json:"force"`
}

// endParkedOps continues the volume's ops that wait for the operator, and waits for their end. It
// returns an error if an op still cannot end. gone is true if one of the ops was a deletion that
// has now succeeded.
func (m *Manager) endParkedOps(ctx context.Context, opID, ref string) (was api.VolumeRegister, gone bool, err error) {
	known, err := request.Known(ctx, m.admission.Runner, opID)
	if known || err != nil {
		return was, false, err // a repeated request
	}
	vol, err := m.env.Registry.Volume(ctx, ref)
	if err != nil {
		return was, false, err
	}
	for _, st := range m.admission.Runner.Active() {
		if st.State != op.StateNeedsOperator || !slices.Contains(st.Op.Keys, request.VolumeKey(vol.ID)) {
			continue
		}
		now, err := m.endParked(ctx, st.Op)
		if err != nil {
			return was, false, api.Errorf(api.CodeNeedsOperator, "cannot delete volume %s: op %s (%s) on it cannot end: %v; once that is mended, ask again, which goes on with it (`%s`)",
				vol.Name, st.Op.ID, st.Op.Kind, err, shell.Line("volferryctl", "volume", "delete", vol.Name, "--force")).With("op_id", st.Op.ID)
		}
		if st.Op.Kind == kindDelete && now.State == op.StateDone {
			was, err = deletedBy(st.Op)
			return was, true, err
		}
	}
	return was, false, nil
}

func (m *Manager) endParked(ctx context.Context, o op.Op) (op.Status, error) {
	if err := m.admission.Runner.Continue(ctx, o.ID); err != nil && !errors.Is(err, op.ErrNotParked) && !errors.Is(err, op.ErrFinished) {
		return op.Status{}, err
	}
	st, err := m.admission.Wait(ctx, o.ID)
	switch {
	case err != nil:
		return st, err
	case st.State == op.StateNeedsOperator:
		return st, errors.New(st.Failure.Message)
	case !st.State.Final():
		return st, errors.New("it goes on, and is not over yet; try again")
	}
	return st, nil
}

func deletedBy(o op.Op) (api.VolumeRegister, error) {
	var in input
	if err := json.Unmarshal(o.Input, &in); err != nil {
		return in.Volume, fmt.Errorf("read the input of op %s: %w", o.ID, err)
	}
	return in.Volume, nil
}

func (m *Manager) decideDelete(ctx context.Context, ref string, force bool) (*input, error) {
	vol, err := m.env.Registry.Volume(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := checkIdle(vol, force); err != nil {
		return nil, err
	}
	id, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.checkReach(ctx, vol, id); err != nil {
		return nil, err
	}
	if err := m.env.checkRecorded(ctx, vol, "cannot delete volume "+vol.Name); err != nil {
		return nil, err
	}
	in := &input{From: vol.Status, Volume: api.VolumeRegister{ID: vol.ID, Name: vol.Name, Host: id, Location: vol.Location}}
	if err := m.env.checkUnused(ctx, vol.Location.Path, "cannot delete volume "+vol.Name); err != nil {
		return in, err
	}
	if err := m.env.checkNoClone(ctx, vol.Location.Path, "cannot delete volume "+vol.Name); err != nil {
		return in, err
	}
	if err := m.env.checkLeft(ctx, vol.ID, "cannot delete volume "+vol.Name); err != nil {
		return in, err
	}
	if err := image.CheckDevice(ctx, vol.Location, m.env.Images.Fingerprint); err != nil {
		return in, image.Prefixed("cannot delete volume "+vol.Name, err)
	}
	if vol.Location.Pool != "" {
		if err := m.rules.CheckOpen(vol.Location.Path); err != nil {
			return in, image.Prefixed("cannot delete volume "+vol.Name, err)
		}
		// The content of an inactive pool is unknown; that is no reason to forget the volume.
		_, err := m.env.inPool(ctx, vol.Location)
		return in, err
	}
	// The path may lead to another place now.
	if err := m.rules.CheckPath(ctx, vol.Location.Path); err != nil {
		return in, err
	}
	if err := m.env.Files.MayWrite(vol.Location.Path); err != nil {
		return in, err
	}
	in.Unlink, err = m.rules.RealPath(vol.Location.Path)
	return in, err
}

// checkReach refuses another host's volume, unless it is in a pool that both hosts see.
func (m *Manager) checkReach(ctx context.Context, vol api.Volume, id string) error {
	owner, err := m.env.Registry.Host(ctx, vol.Host)
	if err == nil && owner.ID == id {
		return nil
	}
	if err != nil && api.CodeOf(err) != api.CodeNotYourHost {
		return err
	}
	elsewhere := api.Errorf(api.CodeNotYourHost, "volume %s is on host %s; run this there, or ask the registry", vol.Name, cmp.Or(owner.Name, vol.Host))
	if vol.Location.Pool == "" {
		return elsewhere
	}
	pools, err := m.env.Pools.Pools(ctx)
	if err != nil {
		return fmt.Errorf("look at the pools: %w", err)
	}
	pool, err := location.Pool(pools, vol.Location.Pool)
	if err != nil || (!location.Shared(pool.Type) && !slices.Contains(m.shared, pool.Name)) {
		return elsewhere
	}
	return nil
}

// checkIdle refuses a volume that is in use according to the registry. stepClaim repeats this
// check.
func checkIdle(vol api.Volume, force bool) error {
	cannot := func(code api.Code, format string, args ...any) *api.Error {
		return api.Errorf(code, "cannot delete volume %s: %s", vol.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case vol.MigrationID != "":
		return cannot(api.CodeMigrationActive, "migration %s is moving it; complete or cancel that first", vol.MigrationID).With("migration_id", vol.MigrationID)
	case len(vol.Attachments) > 0:
		a := vol.Attachments[0]
		return cannot(api.CodeVolumeInUse, "it is attached to instance %s as %s; detach it first", cmp.Or(a.InstanceName, a.InstanceID), a.Device).
			With("instance_id", a.InstanceID)
	case vol.Status == api.VolumeAvailable:
		return nil
	case !slices.Contains([]api.VolumeStatus{api.VolumeCreating, api.VolumeDeleting, api.VolumeError}, vol.Status):
		return cannot(api.CodeVolumeNotAvailable, "it is %s", vol.Status).With("status", vol.Status)
	case !force:
		return cannot(api.CodeVolumeNotAvailable, "it is %s; if nothing works on it any more, --force deletes what there is of it", vol.Status).With("status", vol.Status)
	}
	return nil
}
