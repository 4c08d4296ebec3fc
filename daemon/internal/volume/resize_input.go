// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type resizeBody struct {
	Volume string           `json:"volume"`
	In     api.VolumeResize `json:"in"`
}

type resizeInput struct {
	VolumeID   string       `json:"volume_id"`
	VolumeName string       `json:"volume_name"`
	Location   api.Location `json:"location"`
	Block      bool         `json:"block,omitempty"`
	// Extends is true if the pool extends the device.
	Extends   bool  `json:"extends,omitempty"`
	SizeBytes int64 `json:"size_bytes"`
	// InstanceID is the instance that has the volume as Device. It is empty if there is none.
	InstanceID   string `json:"instance_id,omitempty"`
	InstanceName string `json:"instance_name,omitempty"`
	Device       string `json:"device,omitempty"`

	// Host, Epoch and Generation are the fencing tokens of the op.
	Host       string `json:"host"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	request.Body
}

// Keys implements request.Input.
func (in *resizeInput) Keys() []string {
	keys := []string{request.VolumeKey(in.VolumeID)}
	if in.InstanceID != "" {
		keys = append(keys, request.InstanceKey(in.InstanceID))
	}
	return keys
}

// Group implements request.Input. The op is alone in its group.
func (in *resizeInput) Group() string { return "" }

func (in *resizeInput) image() hv.Image { return location.Image(in.Location, in.Block) }

func (in *resizeInput) verdict() string { return "cannot resize volume " + in.VolumeName }

func (in *resizeInput) cannot(code api.Code, format string, args ...any) *api.Error {
	return api.Errorf(code, "%s: %s", in.verdict(), fmt.Sprintf(format, args...))
}

func resizeStep(name string, do, undo op.DoFunc[resizeInput], observe op.ObserveFunc[resizeInput]) op.Step {
	return op.StepOf(op.InputOf[resizeInput], name, do, undo, observe)
}
