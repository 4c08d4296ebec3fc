// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/op"
)

// runNote is written in the pause, before the definition names dst; where the pivot comes first, before that.
type runNote struct {
	// Run tells the process of the guest, and Top is the stamp of the image that takes its
	// writes, while the guest is paused.
	Run int         `json:"run"`
	Top image.Stamp `json:"top"`
	// DstNewer says that dst was seen to have what the image that was left lacks. Whatever is written to
	// that image from then on is a copy of dst, of which nobody knows whether it came to its end.
	DstNewer bool `json:"dst_newer,omitempty"`
	// Asked: libvirt was asked for the pivot of a job that writes in the background, and has not said what came of it.
	Asked bool `json:"asked,omitempty"`
}

func (e *Env) noteRun(ctx context.Context, r *op.Run, s *Spec, disk *diskState) error {
	return e.noteRunAsked(ctx, r, s, disk, false)
}

func (e *Env) noteRunAsked(ctx context.Context, r *op.Run, s *Spec, disk *diskState, asked bool) error {
	stamp, err := e.images.Stamp(ctx, s.top())
	if err != nil {
		return err
	}
	return r.Note(ctx, runNote{Run: disk.dom.Run, Top: stamp, Asked: asked})
}
