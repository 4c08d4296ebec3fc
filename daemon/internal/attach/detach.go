// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Detach detaches a volume from an instance of this host. It returns the previous attachment once
// guest and registry have released it. While the registry does not answer, the guest still loses
// the disk, and the attachment stays detaching.
func (m *Manager) Detach(ctx context.Context, opID, volumeRef string, in api.VolumeDetach) (api.Attachment, error) {
	return m.endOf(ctx, m.detachRequest(opID, volumeRef, in))
}

// BeginDetach starts a Detach, and returns once the registry has recorded or refused it. The op
// continues.
func (m *Manager) BeginDetach(ctx context.Context, opID, volumeRef string, in api.VolumeDetach) (api.Attachment, error) {
	return m.beginEnd(ctx, m.detachRequest(opID, volumeRef, in))
}

// Delete ends one attachment. Without force it is Detach. With force it ignores the attachment's
// state and does not change the guest; it returns state_forbidden if the guest has the disk.
func (m *Manager) Delete(ctx context.Context, opID, attachmentRef string, force bool) (api.Attachment, error) {
	return m.endOf(ctx, m.deleteRequest(opID, attachmentRef, force))
}

// BeginDelete starts a Delete, and returns once the op is accepted or refused.
func (m *Manager) BeginDelete(ctx context.Context, opID, attachmentRef string, force bool) (api.Attachment, error) {
	return m.beginEnd(ctx, m.deleteRequest(opID, attachmentRef, force))
}

type detachBody struct {
	Volume     string           `json:"volume,omitempty"`
	In         api.VolumeDetach `json:"in,omitzero"`
	Attachment string           `json:"attachment,omitempty"`
	Force      bool             `json:"force,omitempty"`
}

func (m *Manager) detachRequest(opID, volumeRef string, in api.VolumeDetach) request.Request {
	return request.Request{
		OpID: opID, Kind: kindDetach, Body: detachBody{Volume: volumeRef, In: in},
		Decide: func(ctx context.Context) (request.Input, error) {
			if in.Instance == "" {
				return nil, api.Errorf(api.CodeInvalidArgument, "instance is missing; `%s` says where the volume is", shell.Line("volferryctl", "volume", "show", volumeRef))
			}
			f, err := m.findAt(ctx, volumeRef, in.Instance)
			if err != nil {
				return nil, err
			}
			return decided(m.decideDetach(ctx, f, in.Force))
		},
	}
}

func (m *Manager) deleteRequest(opID, ref string, force bool) request.Request {
	req := request.Request{
		OpID: opID, Kind: kindDetach, Body: detachBody{Attachment: ref, Force: force},
		Decide: func(ctx context.Context) (request.Input, error) {
			f, err := m.find(ctx, ref)
			if err != nil {
				return nil, err
			}
			return decided(m.decideDetach(ctx, f, false))
		},
	}
	if !force {
		return req
	}
	req.Kind = kindDelete
	req.Decide = func(ctx context.Context) (request.Input, error) { return decided(m.decideDelete(ctx, ref)) }
	return req
}

func (m *Manager) endOf(ctx context.Context, req request.Request) (api.Attachment, error) {
	in, st, err := m.perform(ctx, req)
	if err != nil {
		return api.Attachment{}, err
	}
	var end released
	if err := json.Unmarshal(st.Outputs[stepNameRelease], &end); err != nil && len(st.Outputs[stepNameRelease]) > 0 {
		return api.Attachment{}, fmt.Errorf("read the result of op %s: %w", req.OpID, err)
	}
	if end.Queued {
		// If the registry is only being restarted, it answers within this wait.
		if _, err := m.admission.Wait(ctx, lateID(req.OpID)); err != nil {
			return api.Attachment{}, err
		}
	}
	return in.attachment(api.AttachmentDetaching), nil
}

func (m *Manager) beginEnd(ctx context.Context, req request.Request) (api.Attachment, error) {
	in, err := m.begin(ctx, req)
	if err != nil {
		return api.Attachment{}, err
	}
	return in.attachment(api.AttachmentDetaching), nil
}

// Queued returns the attachments that the guests have released, but that the registry still has.
func (m *Manager) Queued() []api.Attachment {
	var out []api.Attachment
	for _, in := range m.env.queued() {
		out = append(out, in.attachment(api.AttachmentDetaching))
	}
	return out
}

// found is an attachment to end. volume is the volume's name, or id if the name is unknown.
type found struct {
	api.Attachment
	volume string
	// remembered is true for data from this host's cache. Otherwise recorded is the registry's
	// volume.
	remembered bool
	recorded   api.Volume
}

func (m *Manager) findAt(ctx context.Context, volumeRef, instanceRef string) (found, error) {
	vol, err := m.env.Registry.Volume(ctx, volumeRef)
	if request.Away(err) {
		if att, ok := m.env.Known.KnownAt(ctx, volumeRef, instanceRef); ok {
			return found{Attachment: att, volume: volumeRef, remembered: true}, nil
		}
	}
	if err != nil {
		return found{}, err
	}
	inst, err := m.env.Registry.Instance(ctx, instanceRef)
	if err != nil {
		return found{}, err
	}
	i := slices.IndexFunc(vol.Attachments, func(a api.Attachment) bool { return a.InstanceID == inst.ID })
	if i < 0 {
		return found{}, api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", vol.Name, inst.Name)
	}
	return found{Attachment: vol.Attachments[i], volume: vol.Name, recorded: vol}, nil
}

func (m *Manager) find(ctx context.Context, ref string) (found, error) {
	att, err := m.env.Registry.Attachment(ctx, ref)
	if request.Away(err) {
		if att, ok := m.env.Known.Known(ctx, ref); ok {
			return found{Attachment: att, volume: cmp.Or(att.VolumeName, att.VolumeID), remembered: true}, nil
		}
	}
	if err != nil {
		return found{}, err
	}
	vol, err := m.env.Registry.Volume(ctx, att.VolumeID)
	if err != nil {
		return found{}, err
	}
	return found{Attachment: att, volume: vol.Name, recorded: vol}, nil
}

func (m *Manager) decideDetach(ctx context.Context, f found, force bool) (input, error) {
	in, dom, err := m.describe(ctx, f)
	if err != nil {
		return in, err
	}
	in.Force = force
	if err := m.decideDetachRoot(ctx, &in, f, dom); err != nil {
		return in, err
	}
	switch f.State {
	case api.AttachmentReserved, api.AttachmentAttaching:
		if !force {
			return in, api.Errorf(api.CodeConflict, "cannot detach volume %s: it is only %s to instance %s; wait, or if nothing is at work on it use --force",
				in.VolumeName, f.State, in.InstanceName)
		}
	case api.AttachmentAttached, api.AttachmentDetaching, api.AttachmentError:
	}
	if err := m.env.notMoving(ctx, &in); err != nil {
		return in, err
	}
	if dom == nil {
		if err := m.env.notUnderAnotherID(ctx, &in, in.cannotDetach()); err != nil {
			return in, err
		}
	}
	v, err := m.env.look(ctx, &in)
	if err != nil {
		return in, err
	}
	if err := in.onItsImage(in.cannotDetach(), v); err != nil {
		return in, err
	}
	if err := m.whereRecorded(ctx, f); err != nil {
		return in, image.Prefixed(in.cannotDetach(), err)
	}
	if err := m.env.checkDetachBesideMoves(ctx, &in, v); err != nil {
		return in, err
	}
	if err := in.comesBack(dom); err != nil {
		return in, err
	}
	if dom == nil || !dom.Persistent {
		return in, nil // there is no definition that could bring the disk back
	}
	return in, checkDomain(in.cannotDetach(), dom)
}

// whereRecorded refuses an attachment if this host's journal has the volume elsewhere: after its
// detach, another host could use the registry's image, which lacks writes. While the registry does
// not answer, no other host gets the volume.
func (m *Manager) whereRecorded(ctx context.Context, f found) error {
	if f.remembered {
		return nil
	}
	err := m.env.Recorded(ctx, f.recorded)
	if request.Away(err) {
		return nil
	}
	return err
}

func (m *Manager) decideDelete(ctx context.Context, ref string) (input, error) {
	f, err := m.find(ctx, ref)
	if err != nil {
		return input{}, err
	}
	if f.remembered {
		return input{}, api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer, and what it holds is what is to be deleted; nothing was changed")
	}
	in, _, err := m.describe(ctx, f)
	if err != nil {
		return in, err
	}
	in.Force, in.Root = true, api.IsRoot(f.BootIndex)
	if err := m.env.notMoving(ctx, &in); err != nil {
		return in, err
	}
	v, err := m.env.look(ctx, &in)
	if err != nil {
		return in, err
	}
	if v.dom == nil {
		if err := m.env.notUnderAnotherID(ctx, &in, "cannot delete attachment "+in.AttachmentID); err != nil {
			return in, err
		}
	}
	return in, in.stillThere(v)
}

func (m *Manager) describe(ctx context.Context, f found) (input, *hv.Domain, error) {
	host, err := m.host(ctx)
	if err != nil {
		return input{}, nil, err
	}
	if err := onThisHost(f.Host, host, "attachment "+f.ID); err != nil {
		return input{}, nil, err
	}
	in := input{
		AttachmentID: f.ID, VolumeID: f.VolumeID, VolumeName: f.volume, InstanceID: f.InstanceID, InstanceName: cmp.Or(f.InstanceName, f.InstanceID),
		DiskAttachment: f.DiskAttachment, Location: f.Location, From: f.State,
		Host: host.ID, HostName: host.Name, Epoch: host.Epoch,
	}
	dom, err := m.env.Domains.Domain(ctx, f.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return in, nil, nil
	}
	if err != nil {
		return in, nil, fmt.Errorf("read instance %s: %w", f.InstanceID, err)
	}
	in.InstanceName = dom.Name
	return in, dom, nil
}

func (m *Manager) decideDetachRoot(ctx context.Context, in *input, f found, dom *hv.Domain) error {
	in.Root = api.IsRoot(f.BootIndex)
	inst, known, err := m.instanceOf(ctx, f, in.Root)
	if err != nil {
		return err
	}
	if known {
		s := inst.RootSlot()
		in.Root = in.Root || s != nil && s.VolumeID != nil && *s.VolumeID == in.VolumeID
		if err := checkLocked("cannot detach volume "+in.VolumeName, inst); err != nil {
			return err
		}
	}
	if !in.Root {
		return nil
	}
	if known {
		if err := in.onShelf(rootDetach, inst); err != nil {
			return err
		}
	}
	return in.off(rootDetach, dom)
}

// instanceOf returns an attachment's instance. It asks the registry only if needed, and uses this
// host's cache while the registry does not answer.
func (m *Manager) instanceOf(ctx context.Context, f found, needed bool) (inst api.Instance, known bool, err error) {
	switch {
	case f.remembered:
		inst, known = m.env.Known.KnownInstance(ctx, f.InstanceID)
		return inst, known, nil
	case !needed: // the registry checks it when the detach begins
		return inst, false, nil
	}
	inst, err = m.env.Registry.Instance(ctx, f.InstanceID)
	if request.Away(err) {
		inst, known = m.env.Known.KnownInstance(ctx, f.InstanceID)
		return inst, known, nil
	}
	return inst, err == nil, err
}
