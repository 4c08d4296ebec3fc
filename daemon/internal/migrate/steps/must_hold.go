// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// MustHold reports whether the guest has to be suspended while a job of the migration begins. Some
// versions of QEMU miss what a guest writes in that time (hv.JobStart.LosesWrites):
//
//   - From the moment in which QEMU puts its filter over the disk, with all requests drained, until
//     mirror_run has looked through the disk, the filter knows of no job: a write goes through it
//     and marks nothing dirty. If the look has come past its blocks before they were allocated,
//     nobody copies them.
//   - Libvirt's suspend is QEMU's stop, which returns when all requests of all disks have come to
//     their end and the images are flushed. Until it is resumed a guest has none in flight, and
//     begins none; nobody else writes to the disk.
//   - The filter knows the job before QEMU sets the job's length, which is 0 till then, or says
//     that it is ready (hv.Job.Tracking). A write that begins later is copied, or marked dirty.
//
// So a job misses nothing if the guest is suspended before it is begun, and is suspended still
// after the job was seen to track. A full copy of one raw image copies every block of it, so there
// nothing depends on what is missed.
//
// Other versions may die of what an I/O thread writes before the job looks
// (hv.JobStart.KillsGuest). They, too, are safe from the moment in which the job is seen to track.
func (e *Env) MustHold(ctx context.Context, s *Spec) (bool, error) {
	v, err := e.hv.QEMUVersion(ctx, s.InstanceID)
	switch {
	case errors.Is(err, hv.ErrNotActive):
		return false, nil // nothing can begin
	case errors.Is(err, hv.ErrUnavailable):
		return false, err
	case err != nil:
		e.log.Warn("the version of a guest's QEMU is not known", "instance", s.InstanceName, "err", err)
		v = hv.Version{}
	}
	harm := e.jobStart(v)
	wholeImage := s.Method == MethodMirror && len(s.SrcChain()) == 1 && s.Src.Format == api.FormatRaw
	switch {
	case harm.LosesWrites && !wholeImage:
		return true, nil
	case !harm.KillsGuest:
		return false, nil
	}
	dom, err := e.hv.Domain(ctx, s.InstanceID)
	if err != nil {
		return false, err
	}
	return dom.IOThreads, nil
}

// mayBeginUnheld refuses the beginning of a job with the guest running where it has to be
// suspended for that: the op is planned anew then.
func (e *Env) mayBeginUnheld(ctx context.Context, s *Spec) error {
	hold, err := e.MustHold(ctx, s)
	if err != nil || !hold {
		return e.hvError(err)
	}
	return &errWorldChanged{fmt.Sprintf("a block job on disk %s of instance %s has to begin with the guest suspended, since its QEMU may lose a write, or die of it, otherwise", s.Target, s.InstanceName)}
}

// BegunHeld reports whether the job of a migration that is at work on the disk of a guest was
// begun with the guest suspended.
func (e *Env) BegunHeld(ctx context.Context, s *Spec) (bool, error) {
	disk, err := e.readDisk(ctx, s)
	if err != nil || disk.mirror == nil {
		return false, err
	}
	process, err := e.hv.Process(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.hvError(err)
	}
	return e.history.BegunHeld(ctx, s, disk.mirror.Job, process.ID)
}
