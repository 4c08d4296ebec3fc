// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// fakeRegistry is a registry in memory, with its rules about attachments.
type fakeRegistry struct {
	hosttest.Registry
	world *world
	// refuses is a state that no attachment may get, or "released".
	refuses api.AttachmentState
	vol     api.Volume
	rows    map[string]api.Attachment
	// detached are the recorded disks of volumes detached from instances.
	detached map[string]api.DetachedDisk
	// root is the root slot of instance web if the test has one; reported are the instances' states
	// that the registry knows.
	root     *rootSlotRow
	reported map[string]hv.State
	locked   bool
	shelf    api.InstanceState // of instance web, if it is shelved
	// changes are the states that attachments got, in order; "" is a release.
	changes []api.AttachmentState
	// onChange, if set, is called with each change; onVolume may edit the registry's answer about
	// the volume.
	onChange func(to api.AttachmentState)
	onVolume func(*api.Volume)
}

func newFakeRegistry(w *world) *fakeRegistry {
	return &fakeRegistry{
		Registry: hosttest.Registry{Moments: w.Moments}, world: w, rows: map[string]api.Attachment{}, detached: map[string]api.DetachedDisk{}, reported: map[string]hv.State{},
		vol: api.Volume{
			ID: testVolume, Name: "vol", Status: api.VolumeAvailable, Generation: 1, Host: hostName, SizeBytes: testSize,
			Location: api.Location{Pool: "shared", Name: "vol.raw", Path: volPath, Format: api.FormatRaw, SizeBytes: testSize},
		},
	}
}

func (r *fakeRegistry) all() []api.Attachment {
	r.Lock()
	defer r.Unlock()
	return slices.Collect(maps.Values(r.rows))
}

// state returns the state of the usual attachment, "" if it is gone.
func (r *fakeRegistry) state() api.AttachmentState {
	r.Lock()
	defer r.Unlock()
	return r.rows[testAtt].State
}

// ask makes one request that changes nothing.
func ask[T any](r *fakeRegistry, answer func() (T, error)) (T, error) {
	return hosttest.Ask(&r.Registry, "registry", answer)
}

// change makes a change once per op id, if the host's epoch is current.
func (r *fakeRegistry) change(opID string, epoch int64, asked any, f func() (api.Attachment, error)) (api.Attachment, error) {
	return hosttest.Change(&r.Registry, "registry", opID, asked, func() (api.Attachment, error) {
		if err := r.CheckEpoch(testHost, epoch); err != nil {
			return api.Attachment{}, err
		}
		return f()
	})
}

func (r *fakeRegistry) Volume(context.Context, string) (api.Volume, error) {
	return ask(r, func() (api.Volume, error) {
		vol := r.vol
		vol.Attachments = slices.Collect(maps.Values(r.rows))
		if r.onVolume != nil {
			r.onVolume(&vol)
		}
		return vol, nil
	})
}

func (r *fakeRegistry) GrowVolume(_ context.Context, _, _ string, in api.VolumeGrow) (api.Volume, error) {
	return ask(r, func() (api.Volume, error) {
		r.vol.SizeBytes, r.vol.Location.SizeBytes = in.SizeBytes, in.SizeBytes
		return r.vol, nil
	})
}

func (r *fakeRegistry) Instance(_ context.Context, ref string) (api.Instance, error) {
	return ask(r, func() (api.Instance, error) {
		zero := 0
		root := []api.BlockDeviceMapping{{Device: "vda", BootIndex: &zero, Note: "not a volume"}}
		switch ref {
		case web, "web":
			in := api.Instance{ID: web, Name: "web", Host: hostName, State: r.shelf, Locked: r.locked, LockReason: "audit", BlockDeviceMappings: root}
			if was, ok := r.detached[web]; ok {
				in.DetachedDisks = []api.DetachedDisk{was}
			}
			if r.root != nil {
				in.BlockDeviceMappings = r.root.mappings(r.rows)
			}
			return in, nil
		case db, "db":
			return api.Instance{ID: db, Name: "db", Host: hostName, BlockDeviceMappings: root}, nil
		case "far":
			return api.Instance{ID: testOp, Name: "far", Host: "beta"}, nil
		}
		return api.Instance{}, api.Errorf(api.CodeNotFound, "there is no instance %s", ref)
	})
}

func (r *fakeRegistry) find(id string) (api.Attachment, error) {
	att, ok := r.rows[id]
	if !ok {
		return att, api.Errorf(api.CodeNotFound, "there is no attachment %s", id)
	}
	return att, nil
}

func (r *fakeRegistry) Attachment(_ context.Context, id string) (api.Attachment, error) {
	return ask(r, func() (api.Attachment, error) { return r.find(id) })
}

func (r *fakeRegistry) Attachments(context.Context, string, string) ([]api.Attachment, error) {
	return ask(r, func() ([]api.Attachment, error) { return slices.Collect(maps.Values(r.rows)), nil })
}

func (r *fakeRegistry) ReserveAttachment(_ context.Context, opID string, in api.AttachmentReserve) (api.Attachment, error) {
	return r.change(opID, in.Epoch, in, func() (api.Attachment, error) {
		switch {
		case r.vol.MigrationID != "":
			return api.Attachment{}, api.Errorf(api.CodeMigrationActive, "volume vol is locked")
		case in.Generation != r.vol.Generation:
			return api.Attachment{}, api.Errorf(api.CodeStaleGeneration, "volume vol has moved")
		case len(r.rows) > 0 && !r.vol.Multiattach:
			return api.Attachment{}, api.Errorf(api.CodeVolumeInUse, "volume vol is attached")
		case in.Root != r.isRoot(in.InstanceID, in.Device), in.Root && r.reported[in.InstanceID] != hv.StateStopped:
			return api.Attachment{}, api.Errorf(api.CodeRootAttachForbidden, "instance web is %s", r.reported[in.InstanceID])
		}
		var bootIndex *int
		if in.Root {
			bootIndex = new(int)
		}
		return r.store(api.Attachment{
			ID: in.ID, VolumeID: in.VolumeID, InstanceID: in.InstanceID, Host: hostName,
			DiskAttachment: api.DiskAttachment{Mode: in.Mode, Device: in.Device, BootIndex: bootIndex},
			State:          api.AttachmentReserved, Location: r.vol.Location,
		}), nil
	})
}

func (r *fakeRegistry) store(att api.Attachment) api.Attachment {
	r.rows[att.ID] = att
	r.changes = append(r.changes, att.State)
	if r.onChange != nil {
		r.onChange(att.State)
	}
	return att
}

func (r *fakeRegistry) TransitionAttachment(_ context.Context, opID, id string, in api.AttachmentTransition) (api.Attachment, error) {
	return r.change(opID, in.Epoch, in, func() (api.Attachment, error) {
		att, err := r.find(id)
		switch {
		case err != nil:
			return att, err
		case !slices.Contains(in.From, att.State):
			return att, api.Errorf(api.CodeConflict, "attachment %s is %s", id, att.State)
		case r.vol.MigrationID != "":
			return att, api.Errorf(api.CodeMigrationActive, "volume vol is locked")
		case in.To == api.AttachmentDetaching && r.isRoot(att.InstanceID, att.Device) && r.reported[att.InstanceID] != hv.StateStopped:
			return att, api.Errorf(api.CodeRootDetachForbidden, "instance web is %s", r.reported[att.InstanceID])
		case in.To == r.refuses:
			return att, api.Errorf(api.CodePolicyDenied, "no attachment may be %s", in.To)
		}
		att.State = in.To
		return r.store(att), nil
	})
}

func (r *fakeRegistry) ReleaseAttachment(_ context.Context, opID, id string, in api.AttachmentRelease) (api.Attachment, error) {
	return r.change(opID, in.Epoch, in, func() (api.Attachment, error) {
		att, err := r.find(id)
		switch {
		case err != nil:
			return att, err
		case r.vol.MigrationID != "":
			return att, api.Errorf(api.CodeMigrationActive, "volume vol is locked")
		case r.refuses == "released":
			return att, api.Errorf(api.CodePolicyDenied, "no attachment may be released")
		case !in.Force && (att.State == api.AttachmentAttached || att.State == api.AttachmentAttaching):
			return att, api.Errorf(api.CodeConflict, "attachment %s is %s", id, att.State)
		}
		delete(r.rows, id)
		if in.Slot != nil && r.detached != nil {
			r.detached[att.InstanceID] = api.DetachedDisk{VolumeID: att.VolumeID, Device: att.Device, Slot: *in.Slot}
		}
		if r.isRoot(att.InstanceID, att.Device) {
			r.root.slot = in.Slot
		}
		r.changes = append(r.changes, "")
		return att, nil
	})
}
