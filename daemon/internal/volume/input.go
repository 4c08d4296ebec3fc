// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// The op kinds of volumes.
const (
	kindCreate = "volume_create"
	kindAdopt  = "volume_adopt"
	kindDelete = "volume_delete"
	kindResize = "volume_resize"
)

// The steps whose output somebody needs.
const (
	stepNameRegister    = "register"
	stepNameCreateImage = "create_image"
	stepNamePublish     = "publish"
	stepNameReserve     = "reserve"
	stepNameGrow        = "grow"
	stepNameRecord      = "record"
)

// input is the Input of every op of a volume but a resize: what was decided before anything
// was touched.
type input struct {
	// Volume is what the registry is to be told, or to forget.
	Volume api.VolumeRegister `json:"volume"`
	// Unlink is the file to remove when a volume is deleted that is in no pool:
	// its path with links followed, or the bytes would outlive it.
	Unlink string `json:"unlink,omitempty"`
	// From is the status in which a volume is claimed that is to be deleted; empty
	// is available.
	From api.VolumeStatus `json:"from,omitempty"`
	request.Body
}

// Keys implements request.Input: the ops of a volume run one after the other.
func (in *input) Keys() []string { return []string{request.VolumeKey(in.Volume.ID)} }

// Group implements request.Input: no other op belongs to it.
func (in *input) Group() string { return "" }

// from is From with its default.
func (in *input) from() api.VolumeStatus { return cmp.Or(in.From, api.VolumeAvailable) }

// step makes an op.Step of functions that take the input. Undo and observe may be
// nil.
func step(name string, do, undo op.DoFunc[input], observe op.ObserveFunc[input]) op.Step {
	return op.StepOf(op.InputOf[input], name, do, undo, observe)
}
