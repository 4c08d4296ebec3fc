// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// PositionOf reads the position from a disk's chain. It compares whole chains, not only their tops:
// an overlay over another image is foreign. A definition may leave out what is below the overlay,
// if it does not say that there is nothing: so libvirt leaves it that is asked for a snapshot in
// the moment in which the guest ends.
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

// direction is where the overlay of a running guest is folded to: dst (complete) or src
// (cancel).
type direction struct {
	job   hv.JobKind
	image func(*Spec) hv.Image
	chain func(*Spec) []hv.Image
	end   Position
}

// nameStep is the step in which the definition names the end.
func (to direction) nameStep() string { return "name_" + string(to.end) }

// inBackground reports whether the job of a direction writes in the background alone.
func inBackground(s *Spec, to direction) bool { return to.job == hv.JobActiveCommit || s.Background() }

var (
	toDst = direction{job: hv.JobCopy, image: (*Spec).DstImage, chain: (*Spec).DstChain, end: OnDst}
	toSrc = direction{job: hv.JobActiveCommit, image: (*Spec).SrcImage, chain: (*Spec).SrcChain, end: OnSrc}
)

// diskState is what libvirt says about the migration's disk at one moment.
type diskState struct {
	dom    *hv.Domain
	active bool
	live   Position // only if active
	config Position
	mirror *hv.Mirror
}

// readDisk reads the domain. Its errors are already typed for the runner.
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

// mirrorTo returns the block job on the disk if it is the job of this direction; nil if there is
// none, and an error if the job is not ours.
func (d *diskState) mirrorTo(to direction, s *Spec) (*hv.Mirror, error) {
	img := to.image(s)
	switch {
	case d.mirror == nil:
		return nil, nil
	case d.mirror.Job == hv.JobOther && d.mirror.Image.Path == img.Path:
		// So libvirt shows a job of ours that has failed, until it is gone.
		return &hv.Mirror{Job: to.job, Image: d.mirror.Image}, nil
	}
	if d.mirror.Job != to.job || d.mirror.Image.Path != img.Path {
		return nil, api.Errorf(api.CodeChainChanged,
			"disk %s of instance %s has a block job (%s) to %s that Volferry did not start: wait for its end, or end it (`%s`), and call again",
			s.Target, s.InstanceName, d.mirror.Job, d.mirror.Image.Path, endJobCommand(s))
	}
	return d.mirror, nil
}

// ours returns our job of this direction, nil if it does not run.
func (d *diskState) ours(to direction, s *Spec) *hv.Mirror {
	mirror, err := d.mirrorTo(to, s)
	if err != nil {
		return nil
	}
	return mirror
}

// JobRuns reports whether a block job runs on the disk of the migration, whoever began it.
func (e *Env) JobRuns(ctx context.Context, s *Spec) (bool, error) {
	disk, err := e.readDisk(ctx, s)
	return err == nil && disk.mirror != nil, err
}
