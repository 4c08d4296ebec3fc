// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/internal/api"
)

// fakeRegistry is a registry in memory, with its rules about the shelf.
type fakeRegistry struct {
	hosttest.Registry
	world *world
	// refuses is a state that the instance may not get.
	refuses api.InstanceState
	inst    api.Instance
	atts    []api.Attachment
	shelf   *api.InstanceDefinition
	// last is the previous host of the instance.
	last    string
	changes []api.InstanceState
	// onMove, if set, is called with each of the changes.
	onMove func(to api.InstanceState)
}

// snapshot is the registry's data at one moment.
type snapshot struct {
	inst  api.Instance
	atts  []api.Attachment
	shelf *api.InstanceDefinition
}

func newFakeRegistry(w *world) *fakeRegistry {
	r := &fakeRegistry{Registry: hosttest.Registry{Moments: w.moments}, world: w}
	r.inst = api.Instance{ID: web, Name: "web"}
	zero := 0
	for i, id := range []string{rootVol, dataVol} {
		a := api.Attachment{
			ID: "att-" + id, VolumeID: id, InstanceID: web, State: api.AttachmentAttached,
			DiskAttachment: api.DiskAttachment{Mode: api.ModeRW, Device: []string{"vda", "vdb"}[i]},
			Location:       api.Location{Path: []string{rootPath, dataPath}[i], Format: api.FormatRaw, SizeBytes: testSize},
		}
		slot := api.BlockDeviceMapping{Device: a.Device, VolumeID: &a.VolumeID, AttachmentID: &a.ID}
		if i == 0 {
			a.BootIndex, slot.BootIndex = &zero, &zero
		}
		r.atts = append(r.atts, a)
		r.inst.BlockDeviceMappings = append(r.inst.BlockDeviceMappings, slot)
	}
	return r
}

// place puts the instance on a host, or on the shelf.
func (r *fakeRegistry) place(n *node, state api.InstanceState) {
	r.inst.State, r.last = state, n.name
	r.on(n.name)
	if state == api.InstanceShelvedOffloaded {
		r.on("")
	}
}

func (r *fakeRegistry) on(host string) {
	r.inst.Host = host
	for i := range r.atts {
		r.atts[i].Host = host
	}
}

// loseRoot empties the root slot, as a detach does, on the shelf or on a host.
func (r *fakeRegistry) loseRoot() {
	r.inst.BlockDeviceMappings[0].VolumeID, r.inst.BlockDeviceMappings[0].AttachmentID = nil, nil
	r.atts = r.atts[1:]
}

func (r *fakeRegistry) now() snapshot {
	r.Lock()
	defer r.Unlock()
	return snapshot{r.inst, slices.Clone(r.atts), r.shelf}
}

func (r *fakeRegistry) report(n *node, state api.InstanceState) {
	r.Lock()
	defer r.Unlock()
	if !r.Down && r.inst.Host == n.name && !r.inst.State.OnShelf() {
		r.inst.State = state
	}
}

// view is the registry for one host.
type view struct {
	*fakeRegistry
	n *node
}

func ask[T any](v *view, answer func() (T, error)) (T, error) {
	return hosttest.Ask(&v.Registry, "registry", answer)
}

func (v *view) Volume(_ context.Context, ref string) (api.Volume, error) {
	return ask(v, func() (api.Volume, error) { return api.Volume{ID: ref, Name: "vol"}, nil })
}

// Instance answers the host of the instance; for one on the shelf it answers every host, because an
// operator has requested it there.
func (v *view) Instance(_ context.Context, ref string) (api.Instance, error) {
	return ask(v, func() (api.Instance, error) {
		switch {
		case ref != web && ref != "web":
			return api.Instance{}, api.Errorf(api.CodeNotFound, "there is no instance %s", ref)
		case v.inst.Host != "" && v.inst.Host != v.n.name:
			return api.Instance{}, api.Errorf(api.CodeNotYourHost, "instance web is on host %s", v.inst.Host)
		}
		return v.inst, nil
	})
}

func (v *view) Attachments(context.Context, string, string) ([]api.Attachment, error) {
	return ask(v, func() ([]api.Attachment, error) { return slices.Clone(v.atts), nil })
}

func (v *view) PermitPause(context.Context, string, string, api.PausePermit) (api.Migration, error) {
	return api.Migration{}, nil
}

func (v *view) TransitionInstance(_ context.Context, opID, _ string, in api.InstanceTransition) (api.ShelvedInstance, error) {
	return hosttest.Change(&v.Registry, "registry", opID, in, func() (api.ShelvedInstance, error) {
		if err := v.may(in); err != nil {
			return api.ShelvedInstance{}, err
		}
		v.move(in)
		return api.ShelvedInstance{Instance: v.inst, Definition: v.shelf, Attachments: slices.Clone(v.atts)}, nil
	})
}

// may refuses a forbidden transition.
func (v *view) may(in api.InstanceTransition) error {
	if err := v.CheckEpoch(in.Host, in.Epoch); err != nil {
		return err
	}
	switch {
	case in.From != v.inst.State:
		return api.Errorf(api.CodeConflict, "instance web is %s", v.inst.State)
	case v.inst.Host != "" && v.inst.Host != v.n.name:
		return api.Errorf(api.CodeNotYourHost, "instance web is on host %s", v.inst.Host)
	case in.To == v.refuses:
		return api.Errorf(api.CodePolicyDenied, "no instance may be %s", in.To)
	case v.inst.Locked:
		return api.Errorf(api.CodeInstanceLocked, "instance web is locked")
	case in.From == api.InstanceShelvedOffloaded && v.inst.BlockDeviceMappings[0].VolumeID == nil:
		return api.Errorf(api.CodeRootVolumeMissing, "cannot unshelve instance web without a root device volume")
	}
	return nil
}

func (v *view) move(in api.InstanceTransition) {
	v.inst.State = in.To
	v.changes = append(v.changes, in.To)
	if v.onMove != nil {
		v.onMove(in.To)
	}
	switch in.To {
	case api.InstanceShelved:
		if in.Definition != nil {
			v.shelf = in.Definition
		}
		v.on(v.n.name)
	case api.InstanceShelvedOffloaded:
		v.last = v.n.name
		v.on("")
	case api.InstanceStopped:
		v.shelf = nil
	case api.InstanceRunning, api.InstancePaused, api.InstanceAsleep, api.InstanceCrashed, api.InstanceError:
	}
}
