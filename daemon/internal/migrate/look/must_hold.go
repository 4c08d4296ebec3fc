// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// MustHold reports whether the guest has to be suspended while a block job of the migration begins.
// Some versions of QEMU miss a guest's writes in that time (hv.JobStart.LosesWrites):
//
//   - After QEMU has inserted its filter over the disk, with all requests drained, until mirror_run
//     has scanned the disk, the filter knows no job: a write passes it and marks nothing dirty. If
//     the scan passed the blocks of the write before they were allocated, they are never copied.
//   - libvirt's suspend is QEMU's stop, which returns when all requests of all disks have ended and
//     the images are flushed. Until it is resumed a guest begins none.
//   - The filter knows the job before QEMU sets the job's length, which is 0 until then, or reports
//     that the job is ready (hv.Job.Tracking). A later write is copied, or marked dirty.
//
// So a job misses nothing if the guest is suspended before the job begins, and until the job is
// seen to track writes. A full copy of one raw image copies every block, so a missed write does no
// harm there.
//
// Other versions may crash by an I/O thread's write before the scan (hv.JobStart.KillsGuest), but
// not once the job is seen to track writes.
func (e *Env) MustHold(ctx context.Context, s *move.Spec) (bool, error) {
	v, err := e.processes.QEMUVersion(ctx, s.InstanceID)
	switch {
	case errors.Is(err, hv.ErrNotActive):
		return false, nil // no job can begin
	case errors.Is(err, hv.ErrUnavailable):
		return false, err
	case err != nil:
		e.log.Warn("the version of a guest's QEMU is not known", "instance", s.InstanceName, "err", err)
		v = hv.Version{}
	}
	harm := e.jobStart(v)
	wholeImage := s.Method == move.MethodMirror && len(s.SrcChain()) == 1 && s.Src.Format == api.FormatRaw
	switch {
	case harm.LosesWrites && !wholeImage:
		return true, nil
	case !harm.KillsGuest:
		return false, nil
	}
	dom, err := e.domains.Domain(ctx, s.InstanceID)
	if err != nil {
		return false, err
	}
	return dom.IOThreads, nil
}

// MayBeginUnheld returns an error that has the op planned again if the guest must be suspended
// while the block job begins.
func (e *Env) MayBeginUnheld(ctx context.Context, s *move.Spec) error {
	hold, err := e.MustHold(ctx, s)
	if err != nil || !hold {
		return e.move.HVError(err)
	}
	return &move.WorldChangedError{What: fmt.Sprintf("a block job on disk %s of instance %s has to begin with the guest suspended, since its QEMU may lose a write, or die of it, otherwise", s.Target, s.InstanceName)}
}

// BegunHeld reports whether the migration's running block job began with the guest suspended.
func (e *Env) BegunHeld(ctx context.Context, s *move.Spec) (bool, error) {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Mirror == nil {
		return false, err
	}
	process, err := e.processes.Process(ctx, s.InstanceID, s.Target)
	if err != nil {
		return false, e.move.HVError(err)
	}
	return e.history.BegunHeld(ctx, s, disk.Mirror.Job, process.ID)
}
