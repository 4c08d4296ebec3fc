// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// snapshotSrc makes the snapshot of an RBD src that no program writes any more. step is the
// running step's name. If the snapshot fails it returns nil and the move continues; the seal then
// has only the size of src.
func (e *Env) snapshotSrc(ctx context.Context, r *op.Run, s *move.Spec, step string) (*move.SrcSnapshot, error) {
	name := rbd.SnapshotName(s.MigrationID)
	found, err := e.images.Snapshot(ctx, s.Src.Path, name, false)
	if err != nil {
		return nil, e.noSnapshot(ctx, s, err)
	}
	noted, err := r.Noted(step, &move.SnapshotNote{})
	if err != nil {
		return nil, err
	}
	if found.ID == 0 {
		if err := r.Note(ctx, move.SnapshotNote{Snapshot: name}); err != nil {
			return nil, err
		}
		noted = true
		if found, err = e.makeSnapshot(ctx, s, name); err != nil {
			return nil, e.noSnapshot(ctx, s, err)
		}
	}
	if !noted || found.Protected { // ours is never protected
		return nil, e.noSnapshot(ctx, s, fmt.Errorf("there is a snapshot %s, which this move has not made", name))
	}
	return &move.SrcSnapshot{Name: name, ID: found.ID}, nil
}

// makeSnapshot makes a snapshot, and looks for it even after an error: the answer may be lost, or
// a client that holds the image's lock may not answer although the cluster does.
func (e *Env) makeSnapshot(ctx context.Context, s *move.Spec, name string) (rbd.Snapshot, error) {
	failed := e.images.MakeSnapshot(ctx, s.Src.Path, s.SrcPrint, name)
	if errors.Is(failed, hv.ErrUnavailable) {
		return rbd.Snapshot{}, failed
	}
	found, err := e.images.Snapshot(ctx, s.Src.Path, name, false)
	if err == nil && found.ID == 0 {
		err = fmt.Errorf("make snapshot %s: %v", name, failed) //nolint:errorlint // not one that passes
	}
	return found, err
}

// noSnapshot returns the error for a failed snapshot, or nil if the move continues without it.
func (e *Env) noSnapshot(ctx context.Context, s *move.Spec, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, hv.ErrUnavailable):
		return e.move.HVError(err)
	case errors.Is(err, image.ErrSilent):
		return op.WaitFor(request.WaitStorage, err)
	}
	e.log.Warn("there is no snapshot of the source, so that a write of another program to it would be noticed only if it changed the size", "migration", s.MigrationID, "src", s.Src.Path, "err", err)
	return nil
}

// writtenSinceSnapshot reports whether src was written since its snapshot. lost means that the
// snapshot is gone, so the result is unknown. The move then continues: the operator who removed
// the snapshot has thereby stated that src is unchanged.
func (e *Env) writtenSinceSnapshot(ctx context.Context, s *move.Spec, was *move.SrcSnapshot) (written, lost bool, err error) {
	if was == nil {
		return false, false, nil
	}
	now, err := e.images.Snapshot(ctx, s.Src.Path, was.Name, true)
	switch {
	case err != nil:
		return false, false, e.move.HVError(err)
	case now.ID != was.ID:
		e.log.Warn("the snapshot of the source is gone: nobody can tell whether the source was written since it was frozen", "migration", s.MigrationID, "src", s.Src.Path, "snapshot", was.Name)
		return false, true, nil
	}
	return now.Written, false, nil
}

// EndsSnapshot wraps the last step before which the seal is checked. The step first calls end,
// which removes the snapshot of src, and reports end's remark.
func (e *Env) EndsSnapshot(st op.Step, end func(context.Context, *move.Spec) (remark string, err error)) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err != nil {
			return err
		}
		remark, err := end(ctx, s)
		if err == nil && remark != "" {
			err = r.SetOutput(move.RemarkOutput{Remark: remark})
		}
		if err != nil {
			return err
		}
		return do(ctx, r)
	}
	return st
}

// StepDropSnapshot removes the snapshot in a cancel that keeps the overlay.
func (e *Env) StepDropSnapshot() op.Step {
	nothing := move.Step("drop_snapshot", func(context.Context, *op.Run, *move.Spec) error { return nil }, nil, nil)
	return e.EndsSnapshot(nothing, e.DropSnapshot)
}

// DropSnapshot removes the snapshot of src that the journal records, and returns a remark if it
// remains.
func (e *Env) DropSnapshot(ctx context.Context, s *move.Spec) (left string, err error) {
	p, err := e.snapshotFacts(ctx, s)
	if err != nil || !p.SnapshotBegun {
		return "", err
	}
	return e.RemoveSnapshot(ctx, s, p.Snapshot)
}

func (e *Env) snapshotFacts(ctx context.Context, s *move.Spec) (move.Facts, error) {
	if !s.SrcKind().Snapshots {
		return move.Facts{}, nil
	}
	return e.history.Facts(ctx, s, "")
}

// ReleaseSnapshot is DropSnapshot after the volume has left src. It adds a remark if src was
// written after the last check of the seal, since the volume may lack that write.
func (e *Env) ReleaseSnapshot(ctx context.Context, s *move.Spec) (remark string, err error) {
	p, err := e.snapshotFacts(ctx, s)
	if err != nil || !p.SnapshotBegun {
		return "", err
	}
	if p.Snapshot != nil && !p.Touched {
		now, err := e.images.Snapshot(ctx, s.Src.Path, p.Snapshot.Name, true)
		if errors.Is(err, hv.ErrUnavailable) || ctx.Err() != nil {
			return "", e.move.HVError(err)
		}
		if err == nil && now.ID == p.Snapshot.ID && now.Written {
			remark = s.Src.Path + " was written by another program right before the switch, or since: it may have what the volume lacks; compare the two before you remove it"
		}
	}
	left, err := e.RemoveSnapshot(ctx, s, p.Snapshot)
	return strings.Join(slices.DeleteFunc([]string{remark, left}, func(t string) bool { return t == "" }), "; "), err
}

// DropSnapshotToFold removes the snapshot before the overlay is folded into src, since Ceph would
// keep the overwritten objects for the snapshot. The journal records that the fold has begun, so
// the seal is not checked again. If the snapshot remains, the end of the op reports it.
func (e *Env) DropSnapshotToFold(ctx context.Context, s *move.Spec) error {
	_, err := e.DropSnapshot(ctx, s)
	return err
}

// RemoveSnapshot removes the snapshot of src, and returns a remark if it remains. made is nil if
// the journal lacks the snapshot's id. RemoveSnapshot does not wait for a cluster that does not
// answer, which may be the reason for the move.
func (e *Env) RemoveSnapshot(ctx context.Context, s *move.Spec, made *move.SrcSnapshot) (left string, err error) {
	name := rbd.SnapshotName(s.MigrationID)
	found, err := e.images.Snapshot(ctx, s.Src.Path, name, false)
	if err == nil {
		if found.ID == 0 || made != nil && found.ID != made.ID {
			return "", nil
		}
		err = e.images.RemoveSnapshot(ctx, s.Src.Path, s.SrcPrint, name, found.ID)
	}
	switch {
	case err == nil, errors.Is(err, image.ErrAbsent):
		return "", nil
	case ctx.Err() != nil:
		return "", err
	case errors.Is(err, hv.ErrUnavailable):
		return "", e.move.HVError(err)
	}
	e.log.Warn("the snapshot of the source is left", "migration", s.MigrationID, "src", s.Src.Path, "snapshot", name, "err", err)
	return fmt.Sprintf("the snapshot of %s that this move has made is left (%v); remove it: `%s`", s.Src.Path, err, removeSnapshotCommand(s)), nil
}

func snapshotSpec(s *move.Spec) string {
	src, err := medium.ParseRBD(s.Src.Path)
	if err != nil {
		return s.Src.Path // impossible: the snapshot was made
	}
	return src.Spec() + "@" + rbd.SnapshotName(s.MigrationID)
}

func removeSnapshotCommand(s *move.Spec) string {
	return shell.Line("rbd", "snap", "rm", "--", snapshotSpec(s))
}

func diffCommand(s *move.Spec) string {
	src, err := medium.ParseRBD(s.Src.Path)
	if err != nil {
		return s.Src.Path
	}
	return shell.Line("rbd", "diff", "--from-snap", rbd.SnapshotName(s.MigrationID), "--", src.Spec())
}
