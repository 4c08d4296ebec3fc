// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// beginUnheld begins a job with the guest running. StepCommit has its own note about src.
func (e *Env) beginUnheld(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction) error {
	if to.End == move.OnSrc {
		return e.begin(ctx, s, to)
	}
	if err := e.AwaitBackup(ctx, s); err != nil { // without a note for each try
		return err
	}
	return e.BeginNoted(ctx, r, s, to, move.BegunNote{WritesNote: move.WritesNote{Writes: true}})
}

// BeginNoted begins the block job into dst or src, and writes the note before. While a backup uses
// the disk, the op waits for its end; while another job of libvirt does, the op is tried again.
//
// If libvirt refuses a job into dst before the job has written dst, BeginNoted notes that as well:
// dst, which may be a released source, counts as written by this move only from its first byte.
func (e *Env) BeginNoted(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, note move.BegunNote) error {
	var before *image.Stamp
	if note.Writes && s.DstKind().Witnessed { // of an address a stamp proves nothing
		if stamp, err := e.images.Stamp(ctx, s.Dst.Path); err == nil {
			before = &stamp
		}
	}
	if err := r.Note(ctx, note); err != nil {
		return err
	}
	err := e.begin(ctx, s, to)
	if err == nil || before == nil || !e.refusedUnwritten(ctx, s, before, err) {
		return err
	}
	note.WritesNote = move.WritesNote{Refused: true}
	if noteErr := r.Note(ctx, note); noteErr != nil {
		e.log.Warn("a block job was refused, and the journal does not have that its destination was not written", "migration", s.MigrationID, "dst", s.Dst.Path, "err", noteErr)
	}
	return err
}

// refusedUnwritten reports whether the error of a new job is libvirt's refusal, and dst is known to
// be unwritten since the stamp. After another error the job may begin, or have begun.
func (e *Env) refusedUnwritten(ctx context.Context, s *move.Spec, before *image.Stamp, refusal error) bool {
	if errors.Is(refusal, hv.ErrUnavailable) || errors.Is(refusal, hv.ErrNoAnswer) || ctx.Err() != nil {
		return false
	}
	if disk, err := e.move.ReadDisk(ctx, s); err != nil || disk.Mirror != nil {
		return false
	}
	now, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil {
		return false
	}
	change, _ := now.ChangeSince(before)
	return change == image.Unchanged
}

func (e *Env) begin(ctx context.Context, s *move.Spec, to move.Direction) error {
	var err error
	if to.End == move.OnSrc {
		err = e.jobs.CommitActive(ctx, s.InstanceID, s.Target, 0)
	} else {
		err = e.jobs.BlockCopy(ctx, s.InstanceID, s.Target, s.DstImage(), e.blockCopyOptions(s))
	}
	if !errors.Is(err, hv.ErrBusy) {
		return err
	}
	if err := e.AwaitBackup(ctx, s); err != nil {
		return err
	}
	return op.Retry(request.BusyDelay, api.Errorf(api.CodeInstanceBusy,
		"disk %s of instance %s is in a job of libvirt that Volferry has not begun: %v; nothing was changed: wait for its end, or end it, and call again",
		s.Target, s.InstanceName, err))
}

// AwaitBackup makes the op wait while another program's backup uses the disk of the running guest.
func (e *Env) AwaitBackup(ctx context.Context, s *move.Spec) error {
	if !e.BackupAtWork(ctx, s) {
		return nil
	}
	return op.WaitFor(request.WaitBackup, api.Errorf(api.CodeInstanceBusy,
		"the switch of volume %s waits for the end of a backup of disk %s of instance %s; `%s` ends it", s.VolumeName, s.Target, s.InstanceName, shell.Line("virsh", "domjobabort", "--", s.InstanceName)))
}

// BackupAtWork reports whether another program's backup uses the disk.
func (e *Env) BackupAtWork(ctx context.Context, s *move.Spec) bool {
	job, err := e.jobs.Job(ctx, s.InstanceID, s.Target)
	return err == nil && job != nil && job.Kind == hv.JobBackup
}
