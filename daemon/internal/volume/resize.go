// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Resize makes a volume larger, be it attached nowhere, to an instance that is off or to
// a running guest, which sees the new size at once. It returns the volume when image,
// guest and registry have the size. To ask for the size that all of them have is no
// error. Ref is its id, name or the beginning of its id. A repeated request gets the same
// answer.
func (m *Manager) Resize(ctx context.Context, opID, ref string, asked api.VolumeResize) (api.Volume, error) {
	_, err := m.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: kindResize, Body: resizeBody{ref, asked},
		Decide: func(ctx context.Context) (request.Input, error) { return m.decideResize(ctx, ref, asked) },
	})
	if err != nil {
		return api.Volume{}, err
	}
	// A migration of another volume of the instance may take hours: it is not waited for.
	if _, err := m.admission.Granted(ctx, opID, stepNameReserve); err != nil {
		return api.Volume{}, err
	}
	st, err := m.admission.End(ctx, opID, fmt.Sprintf("volume %.64s is being resized", ref))
	if err != nil {
		return api.Volume{}, err
	}
	if len(st.Outputs[stepNameRecord]) == 0 {
		return api.Volume{}, api.Errorf(api.CodeNotYourHost, "the image of volume %.64s has %s now, but the volume was taken from this host meanwhile; ask the registry where it is", ref, api.ExactBytes(asked.SizeBytes))
	}
	return volumeOf(st, stepNameRecord)
}

// resizeBody is what the caller of a resize sent.
type resizeBody struct {
	Volume string           `json:"volume"`
	In     api.VolumeResize `json:"in"`
}

// resizeInput is the input of a resize: what was decided before anything was touched.
type resizeInput struct {
	VolumeID   string       `json:"volume_id"`
	VolumeName string       `json:"volume_name"`
	Location   api.Location `json:"location"`
	Block      bool         `json:"block,omitempty"`
	// SizeBytes is the size that the volume gets.
	SizeBytes int64 `json:"size_bytes"`
	// InstanceID is the instance that has the volume, as Device; empty if none has.
	InstanceID   string `json:"instance_id,omitempty"`
	InstanceName string `json:"instance_name,omitempty"`
	Device       string `json:"device,omitempty"`

	// Host, Epoch and Generation are the tokens of the op.
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	request.Body
}

// Keys implements request.Input: nothing else is done to the volume meanwhile, nor to
// what its instance is made of.
func (in *resizeInput) Keys() []string {
	keys := []string{request.VolumeKey(in.VolumeID)}
	if in.InstanceID != "" {
		keys = append(keys, request.InstanceKey(in.InstanceID))
	}
	return keys
}

// Group implements request.Input: no other op belongs to it.
func (in *resizeInput) Group() string { return "" }

func (in *resizeInput) image() hv.Image { return location.Image(in.Location, in.Block) }

func (in *resizeInput) verdict() string { return "cannot resize volume " + in.VolumeName }

func (in *resizeInput) cannot(code api.Code, format string, args ...any) *api.Error {
	return api.Errorf(code, "%s: %s", in.verdict(), fmt.Sprintf(format, args...))
}

// resizeStep makes an op.Step of functions that take the input of a resize.
func resizeStep(name string, do, undo op.DoFunc[resizeInput], observe op.ObserveFunc[resizeInput]) op.Step {
	return op.StepOf(op.InputOf[resizeInput], name, do, undo, observe)
}

func (m *Manager) decideResize(ctx context.Context, ref string, asked api.VolumeResize) (*resizeInput, error) {
	if err := asked.Check(); err != nil {
		return nil, err
	}
	vol, err := m.env.Registry.Volume(ctx, ref)
	if err != nil {
		return nil, err
	}
	id, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	host, err := m.env.Registry.Host(ctx, id)
	if err != nil {
		return nil, err
	}
	in := &resizeInput{
		VolumeID: vol.ID, VolumeName: vol.Name, Location: vol.Location, SizeBytes: asked.SizeBytes,
		Host: host.ID, Epoch: host.Epoch, Generation: vol.Generation,
	}
	if err := in.checkVolume(vol); err != nil {
		return nil, err
	}
	if err := m.reachForResize(ctx, in, vol, host); err != nil {
		return nil, err
	}
	return in, m.checkSize(ctx, in)
}
