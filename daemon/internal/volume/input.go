// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const (
	kindCreate = "volume_create"
	kindAdopt  = "volume_adopt"
	kindDelete = "volume_delete"
	kindResize = "volume_resize"
)

const (
	stepNameRegister    = "register"
	stepNameCreateImage = "create_image"
	stepNamePublish     = "publish"
	stepNameReserve     = "reserve"
	stepNameGrow        = "grow"
	stepNameRecord      = "record"
)

type input struct {
	// Volume is the volume to register or to delete.
	Volume api.VolumeRegister `json:"volume"`
	// Unlink is the file to remove if the volume is outside pools. Its path has no links, because
	// the removal of a link would leave the bytes.
	Unlink string `json:"unlink,omitempty"`
	// From is the status of the volume before it is claimed for deletion; empty means available.
	From api.VolumeStatus `json:"from,omitempty"`
	request.Body
}

// Keys implements request.Input. The ops of a volume run one after the other.
func (in *input) Keys() []string { return []string{request.VolumeKey(in.Volume.ID)} }

// Group implements request.Input. The op is alone in its group.
func (in *input) Group() string { return "" }

func (in *input) from() api.VolumeStatus { return cmp.Or(in.From, api.VolumeAvailable) }

func step(name string, do, undo op.DoFunc[input], observe op.ObserveFunc[input]) op.Step {
	return op.StepOf(op.InputOf[input], name, do, undo, observe)
}
