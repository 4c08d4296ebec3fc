// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The op kinds of volumes.
const (
	kindCreate = "volume_create"
	kindAdopt  = "volume_adopt"
	kindDelete = "volume_delete"
)

// The steps whose output somebody needs.
const (
	stepNameRegister    = "register"
	stepNameCreateImage = "create_image"
	stepNamePublish     = "publish"
)

// Plans returns the plans of all op kinds of volumes, for the runner.
func (g *Manager) Plans() []op.Plan {
	m := g.machine
	return []op.Plan{
		{Kind: kindCreate, Steps: []op.Step{
			m.stepRegister(),
			m.stepCreateImage(),
			m.stepPublish(),
		}},
		{Kind: kindAdopt, Steps: []op.Step{
			m.stepRegister(),
		}},
		{Kind: kindDelete, Commit: "remove_image", Steps: []op.Step{
			m.stepClaim(),
			m.stepRemoveImage(),
			m.stepForget(),
		}},
	}
}

// input is the Input of every op of a volume: what was decided before anything
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
	request.Asked
}

// Keys implements request.Input: the ops of a volume run one after the other.
func (in *input) Keys() []string { return []string{volumeKey(in.Volume.ID)} }

// Group implements request.Input: no other op belongs to it.
func (in *input) Group() string { return "" }

// from is From with its default.
func (in *input) from() api.VolumeStatus { return cmp.Or(in.From, api.VolumeAvailable) }

// doFunc and observeFunc are steps written against the input instead of the raw
// run.
type (
	doFunc      func(ctx context.Context, r *op.Run, in *input) error
	observeFunc func(ctx context.Context, r *op.Run, in *input) (op.Observation, error)
)

// step makes an op.Step of functions that take the input. Undo may be nil.
func step(name string, do, undo doFunc, observe observeFunc) op.Step {
	withInput := func(f doFunc) func(context.Context, *op.Run) error {
		if f == nil {
			return nil
		}
		return func(ctx context.Context, r *op.Run) error {
			var in input
			if err := r.Input(&in); err != nil {
				return err
			}
			return f(ctx, r, &in)
		}
	}
	return op.Step{
		Name: name, Do: withInput(do), Undo: withInput(undo),
		Observe: func(ctx context.Context, r *op.Run) (op.Observation, error) {
			var in input
			if err := r.Input(&in); err != nil {
				return op.Unknown, err
			}
			return observe(ctx, r, &in)
		},
	}
}

// done turns a yes or no into an observation.
func done(yes bool) op.Observation {
	if yes {
		return op.Done
	}
	return op.NotDone
}
