// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// PositionOf reads the position from a disk's chain. It compares whole chains: an overlay over
// another image is foreign. A definition may omit the chain below the overlay, unless it states
// that there is none: libvirt omits it if a snapshot is requested when the guest is just ending.
func PositionOf(s *Spec, d *hv.Disk) Position {
	if d == nil {
		return Foreign
	}
	src, dst, overlay := s.SrcChain(), s.DstChain(), s.OverlayChain()
	bases := len(src) - 1
	switch {
	case location.OnChain(d, overlay, len(overlay)-1):
		return OnOverlay
	case location.OnChain(d, src, bases):
		return OnSrc
	case location.OnChain(d, dst, len(dst)-1):
		return OnDst
	}
	return Foreign
}

// direction is the image into which the overlay of a running guest is folded: dst (complete) or src
// (cancel).
type direction struct {
	job   hv.JobKind
	image func(*Spec) hv.Image
	chain func(*Spec) []hv.Image
	end   Position
}

// nameStep returns the name of the step that changes the definition to the end.
func (to direction) nameStep() string { return "name_" + string(to.end) }

// inBackground reports whether the job of a direction writes only in the background.
func inBackground(s *Spec, to direction) bool { return to.job == hv.JobActiveCommit || s.Background() }

var (
	toDst = direction{job: hv.JobCopy, image: (*Spec).DstImage, chain: (*Spec).DstChain, end: OnDst}
	toSrc = direction{job: hv.JobActiveCommit, image: (*Spec).SrcImage, chain: (*Spec).SrcChain, end: OnSrc}
)

type diskState struct {
	dom    *hv.Domain
	active bool
	live   Position // only if active
	config Position
	mirror *hv.Mirror
}

// readDisk reads the domain. Its errors are typed for the runner.
func (e *Env) readDisk(ctx context.Context, s *Spec) (*diskState, error) {
	dom, err := e.hv.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		err = errors.Join(Undefined(s), err)
	}
	if err != nil {
		return nil, e.hvError(err)
	}
	disk := &diskState{dom: dom, active: dom.State.Active(), config: PositionOf(s, dom.ConfigDisk(s.Target))}
	if disk.active {
		live := dom.LiveDisk(s.Target)
		disk.live = PositionOf(s, live)
		if live != nil {
			disk.mirror = live.Mirror
		}
	}
	return disk, nil
}

// mirrorTo returns the block job on the disk if it is this direction's, nil if there is no job, and
// an error for another program's job.
func (d *diskState) mirrorTo(to direction, s *Spec) (*hv.Mirror, error) {
	img := to.image(s)
	switch {
	case d.mirror == nil:
		return nil, nil
	case d.mirror.Job == hv.JobOther && d.mirror.Image.Path == img.Path:
		// libvirt shows a failed job of ours so, until the job is gone.
		return &hv.Mirror{Job: to.job, Image: d.mirror.Image}, nil
	}
	if d.mirror.Job != to.job || d.mirror.Image.Path != img.Path {
		return nil, api.Errorf(api.CodeChainChanged,
			"disk %s of instance %s has a block job (%s) to %s that Volferry did not start: wait for its end, or end it (`%s`), and call again",
			s.Target, s.InstanceName, d.mirror.Job, d.mirror.Image.Path, endJobCommand(s))
	}
	return d.mirror, nil
}

// ours returns our job of this direction, or nil if it does not run.
func (d *diskState) ours(to direction, s *Spec) *hv.Mirror {
	mirror, err := d.mirrorTo(to, s)
	if err != nil {
		return nil
	}
	return mirror
}

// JobRuns reports whether a block job runs on the disk of the migration, whichever program began
// it.
func (e *Env) JobRuns(ctx context.Context, s *Spec) (bool, error) {
	disk, err := e.readDisk(ctx, s)
	return err == nil && disk.mirror != nil, err
}
