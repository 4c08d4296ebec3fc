// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Attach attaches a volume to an instance of this host: running, paused or stopped. It returns the
// attachment when guest and definition have the disk. volumeRef is an id, its beginning, or a
// name.
func (m *Manager) Attach(ctx context.Context, opID, volumeRef string, in api.VolumeAttach) (api.Attachment, error) {
	_, st, err := m.perform(ctx, m.attachRequest(opID, volumeRef, in))
	if err != nil {
		return api.Attachment{}, err
	}
	var att api.Attachment
	if err := json.Unmarshal(st.Outputs[stepNameComplete], &att); err != nil {
		return att, fmt.Errorf("read the result of op %s: %w", opID, err)
	}
	return att, nil
}

// BeginAttach starts an Attach, and returns once the registry has reserved or refused the volume.
// The op continues.
func (m *Manager) BeginAttach(ctx context.Context, opID, volumeRef string, in api.VolumeAttach) (api.Attachment, error) {
	what, err := m.begin(ctx, m.attachRequest(opID, volumeRef, in))
	if err != nil {
		return api.Attachment{}, err
	}
	return what.attachment(api.AttachmentReserved), nil
}

type attachBody struct {
	Volume string           `json:"volume"`
	In     api.VolumeAttach `json:"in"`
}

func (m *Manager) attachRequest(opID, volumeRef string, in api.VolumeAttach) request.Request {
	return request.Request{
		OpID: opID, Kind: kindAttach, Body: attachBody{volumeRef, in},
		Decide: func(ctx context.Context) (request.Input, error) { return decided(m.decideAttach(ctx, volumeRef, in)) },
	}
}

func (m *Manager) decideAttach(ctx context.Context, volumeRef string, asked api.VolumeAttach) (input, error) {
	if err := asked.Check(); err != nil {
		return input{}, err
	}
	host, err := m.host(ctx)
	if err != nil {
		return input{}, err
	}
	vol, err := m.env.Registry.Volume(ctx, volumeRef)
	if err != nil {
		return input{}, err
	}
	inst, err := m.env.Registry.Instance(ctx, asked.Instance)
	if err != nil {
		return input{}, err
	}
	if err := onThisHost(inst.Host, host, "instance "+inst.Name); err != nil {
		return input{}, err
	}
	if len(vol.Attachments) > 0 { // an attach may wait for the operator
		m.admission.LookAgain(ctx, request.VolumeKey(vol.ID))
		if vol, err = m.env.Registry.Volume(ctx, volumeRef); err != nil {
			return input{}, err
		}
	}
	if err := checkLocked("cannot attach volume "+vol.Name, inst); err != nil {
		return input{}, err
	}
	if err := checkVolume(vol, inst, host); err != nil {
		return input{}, err
	}
	if err := image.Prefixed("cannot attach volume "+vol.Name, m.env.Recorded(ctx, vol)); err != nil {
		return input{}, err
	}
	in := input{
		AttachmentID: uuid.NewString(), VolumeID: vol.ID, VolumeName: vol.Name, InstanceID: inst.ID, InstanceName: inst.Name,
		DiskAttachment: asked.DiskAttachment(), Shareable: vol.Multiattach, Location: vol.Location,
		Host: host.ID, HostName: host.Name, Epoch: host.Epoch, Generation: vol.Generation,
	}
	err = m.decideDisk(ctx, &in, asked, inst)
	return in, err
}

func (m *Manager) decideDisk(ctx context.Context, in *input, asked api.VolumeAttach, inst api.Instance) error {
	dom, err := m.env.Domains.Domain(ctx, inst.ID)
	switch {
	case errors.Is(err, hv.ErrNotFound) && asked.Root:
		return in.off(rootAttach, nil)
	case errors.Is(err, hv.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "instance %s is not defined on this host", inst.Name)
	case err != nil:
		return fmt.Errorf("read instance %s: %w", inst.Name, err)
	}
	if asked.Root {
		if err := m.env.chooseRoot(ctx, in, asked.Device, dom, inst); err != nil {
			return err
		}
	}
	if err := checkDomain("cannot attach volume "+in.VolumeName, dom); err != nil {
		return err
	}
	if !asked.Root {
		root, err := m.env.rootAway(inst)
		if err != nil {
			return err
		}
		if err := m.env.chooseSlot(in, asked, dom, inst, root); err != nil {
			return err
		}
	}
	if err := m.env.checkAttachBesideMoves(ctx, in); err != nil {
		return err
	}
	return m.env.checkBefore(ctx, in)
}

func onThisHost(is string, host Host, what string) error {
	if is == host.ID || is == host.Name {
		return nil
	}
	return api.Errorf(api.CodeNotYourHost, "%s is on host %s and this is %s; run this there, or ask the registry", what, is, host.Name)
}

// checkVolume makes some checks of the registry's reservation first: errors of this host's checks
// would hide the registry's.
func checkVolume(vol api.Volume, inst api.Instance, host Host) error {
	cannot := func(code api.Code, format string, args ...any) *api.Error {
		return api.Errorf(code, "cannot attach volume %s: %s", vol.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case vol.MigrationID != "":
		return cannot(api.CodeMigrationActive, "migration %s is moving it; complete or cancel that first", vol.MigrationID).
			With("migration_id", vol.MigrationID)
	case vol.Status == api.VolumeCreating || vol.Status == api.VolumeDeleting || vol.Status == api.VolumeError || vol.Status == api.VolumeResizing:
		return cannot(api.CodeVolumeNotAvailable, "it is %s", vol.Status).With("status", vol.Status)
	case vol.Location.Pool == "" && vol.Host != "" && vol.Host != host.ID && vol.Host != host.Name:
		return cannot(api.CodeNotYourHost, "it is at %s on host %s, and in no pool that this host could share", vol.Location.Path, vol.Host)
	}
	for _, a := range vol.Attachments {
		if a.InstanceID == inst.ID {
			return cannot(api.CodeConflict, "it is at instance %s already, as %s (%s)", inst.Name, a.Device, a.State).With("attachment_id", a.ID)
		}
		if !vol.Multiattach {
			return cannot(api.CodeVolumeInUse, "it is %s at instance %s, and its type is not multiattach", a.State, cmp.Or(a.InstanceName, a.InstanceID)).
				With("instance_id", a.InstanceID).With("attachment_id", a.ID)
		}
	}
	return nil
}
