// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// PositionOf returns the position of a disk by its whole chain: an overlay over another image is
// foreign. The chain may omit the images below the overlay, as libvirt does if a snapshot is
// requested while the guest ends, but must not state that the overlay has none.
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

// Direction is a direction of the switch: the overlay is folded into dst (complete) or into src
// (cancel).
type Direction struct {
	Job   hv.JobKind
	Image func(*Spec) hv.Image
	Chain func(*Spec) []hv.Image
	End   Position
}

// Kind returns the kind of storage of the direction's image.
func (d Direction) Kind(s *Spec) medium.Kind { return kindOf(d.Image(s)) }

// InBackground reports whether the block job of a direction copies a guest's write only later,
// instead of writing it to both images.
func InBackground(s *Spec, to Direction) bool { return to.Job == hv.JobActiveCommit || s.Background() }

// The directions of a switch.
var (
	ToDst = Direction{Job: hv.JobCopy, Image: (*Spec).DstImage, Chain: (*Spec).DstChain, End: OnDst}
	ToSrc = Direction{Job: hv.JobActiveCommit, Image: (*Spec).SrcImage, Chain: (*Spec).SrcChain, End: OnSrc}
)

// DiskState is libvirt's view of the disk of a migration.
type DiskState struct {
	Dom    *hv.Domain
	Active bool
	Live   Position // only if active
	Config Position
	Mirror *hv.Mirror
}

// ReadDisk returns libvirt's view of the disk, with errors typed for the runner.
func (e *Env) ReadDisk(ctx context.Context, s *Spec) (*DiskState, error) {
	dom, err := e.hv.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		err = errors.Join(Undefined(s), err)
	}
	if err != nil {
		return nil, e.HVError(err)
	}
	disk := &DiskState{Dom: dom, Active: dom.State.Active(), Config: PositionOf(s, dom.ConfigDisk(s.Target))}
	if disk.Active {
		live := dom.LiveDisk(s.Target)
		disk.Live = PositionOf(s, live)
		if live != nil {
			disk.Mirror = live.Mirror
		}
	}
	return disk, nil
}

// MirrorTo returns the block job on the disk, nil if there is none, and an error for a job that is
// not this direction's.
func (d *DiskState) MirrorTo(to Direction, s *Spec) (*hv.Mirror, error) {
	img := to.Image(s)
	switch {
	case d.Mirror == nil:
		return nil, nil
	case d.Mirror.Job == hv.JobOther && d.Mirror.Image.Path == img.Path:
		// Until a failed job is gone, libvirt shows it like this.
		return &hv.Mirror{Job: to.Job, Image: d.Mirror.Image}, nil
	}
	if d.Mirror.Job != to.Job || d.Mirror.Image.Path != img.Path {
		return nil, api.Errorf(api.CodeChainChanged,
			"disk %s of instance %s has a block job (%s) to %s that Volferry did not start: wait for its end, or end it (`%s`), and call again",
			s.Target, s.InstanceName, d.Mirror.Job, d.Mirror.Image.Path, EndJobCommand(s))
	}
	return d.Mirror, nil
}

// Ours returns the migration's block job of this direction, or nil.
func (d *DiskState) Ours(to Direction, s *Spec) *hv.Mirror {
	mirror, err := d.MirrorTo(to, s)
	if err != nil {
		return nil
	}
	return mirror
}

// JobRuns reports whether any program's block job runs on the disk.
func (e *Env) JobRuns(ctx context.Context, s *Spec) (bool, error) {
	disk, err := e.ReadDisk(ctx, s)
	return err == nil && disk.Mirror != nil, err
}
