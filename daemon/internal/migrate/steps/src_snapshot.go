// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// snapshotSrc makes the snapshot of src, an RBD image that nobody writes any more, in the step with
// this name. It returns nil where there can be none, which no move fails for: then the size of src
// is all that is known of it.
func (e *Env) snapshotSrc(ctx context.Context, r *op.Run, s *Spec, step string) (*SrcSnapshot, error) {
	if s.SrcPrint == "" {
		return nil, nil //nolint:nilnil // as above
	}
	name := rbd.SnapshotName(s.MigrationID)
	found, err := e.images.Snapshot(ctx, s.Src.Path, name, false)
	if err != nil {
		return nil, e.noSnapshot(ctx, s, err)
	}
	noted, err := r.Noted(step, &snapshotNote{})
	if err != nil {
		return nil, err
	}
	if found.ID == 0 {
		if err := r.Note(ctx, snapshotNote{name}); err != nil {
			return nil, err
		}
		noted = true
		if found, err = e.makeSnapshot(ctx, s, name); err != nil {
			return nil, e.noSnapshot(ctx, s, err)
		}
	}
	if !noted || found.Protected { // which ours never is
		return nil, e.noSnapshot(ctx, s, fmt.Errorf("there is a snapshot %s, which this move has not made", name))
	}
	return &SrcSnapshot{name, found.ID}, nil
}

// makeSnapshot looks afterwards: the answer may be lost, and a cluster that does not answer is told
// from a client that has the lock of the image and does not.
func (e *Env) makeSnapshot(ctx context.Context, s *Spec, name string) (rbd.Snapshot, error) {
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

// noSnapshot is the error for a snapshot that could not be made, nil if the move goes on without.
func (e *Env) noSnapshot(ctx context.Context, s *Spec, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, hv.ErrUnavailable):
		return e.hvError(err)
	case errors.Is(err, image.ErrSilent):
		return op.WaitFor(request.WaitStorage, err)
	}
	e.log.Warn("there is no snapshot of the source, so that a write of another program to it would be noticed only if it changed the size", "migration", s.MigrationID, "src", s.Src.Path, "err", err)
	return nil
}

// writtenSinceSnapshot reports whether src was written since its snapshot was made. Lost: the
// snapshot is gone, and nobody can tell any more. Whoever has removed it has said that src may be
// taken as it is, as who gives a file its time back.
func (e *Env) writtenSinceSnapshot(ctx context.Context, s *Spec, was *SrcSnapshot) (written, lost bool, err error) {
	if was == nil {
		return false, false, nil
	}
	now, err := e.images.Snapshot(ctx, s.Src.Path, was.Name, true)
	switch {
	case err != nil:
		return false, false, e.hvError(err)
	case now.ID != was.ID:
		e.log.Warn("the snapshot of the source is gone: nobody can tell whether the source was written since it was frozen", "migration", s.MigrationID, "src", s.Src.Path, "snapshot", was.Name)
		return false, true, nil
	}
	return now.Written, false, nil
}

// endsSnapshot is a step behind which nobody asks whether src was written: before it the snapshot
// of src is removed, and the caller is told what there is to say of it.
func (e *Env) endsSnapshot(st op.Step, end func(context.Context, *Spec) (remark string, err error)) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		s, err := specOf(r)
		if err != nil {
			return err
		}
		remark, err := end(ctx, s)
		if err == nil && remark != "" {
			err = r.SetOutput(remarkOutput{remark})
		}
		if err != nil {
			return err
		}
		return do(ctx, r)
	}
	return st
}

// dropSnapshot removes the snapshot of src that the journal knows of, and returns what is left of
// it, in words.
func (e *Env) dropSnapshot(ctx context.Context, s *Spec) (left string, err error) {
	p, err := e.snapshotFacts(ctx, s)
	if err != nil || !p.SnapshotBegun {
		return "", err
	}
	return e.removeSnapshot(ctx, s, p.Snapshot)
}

// snapshotFacts are those of a src that may have a snapshot.
func (e *Env) snapshotFacts(ctx context.Context, s *Spec) (Facts, error) {
	if !api.IsRBD(s.Src.Path) {
		return Facts{}, nil
	}
	return e.history.Facts(ctx, s, "")
}

// releaseSnapshot is dropSnapshot for a volume that has left src. What was written there between
// the last look and the switch, the volume may lack.
func (e *Env) releaseSnapshot(ctx context.Context, s *Spec) (remark string, err error) {
	p, err := e.snapshotFacts(ctx, s)
	if err != nil || !p.SnapshotBegun {
		return "", err
	}
	if p.Snapshot != nil && !p.Touched {
		now, err := e.images.Snapshot(ctx, s.Src.Path, p.Snapshot.Name, true)
		if errors.Is(err, hv.ErrUnavailable) || ctx.Err() != nil {
			return "", e.hvError(err)
		}
		if err == nil && now.ID == p.Snapshot.ID && now.Written {
			remark = s.Src.Path + " was written by another program right before the switch, or since: it may have what the volume lacks; compare the two before you remove it"
		}
	}
	left, err := e.removeSnapshot(ctx, s, p.Snapshot)
	return strings.Join(slices.DeleteFunc([]string{remark, left}, func(t string) bool { return t == "" }), "; "), err
}

// dropSnapshotToFold removes the snapshot before the overlay is written back into src, of which
// Ceph would keep for it what is written over. That this has begun is in the journal already, so
// that nobody asks any more. What is left of it the end of the op says.
func (e *Env) dropSnapshotToFold(ctx context.Context, s *Spec) error {
	_, err := e.dropSnapshot(ctx, s)
	return err
}

// removeSnapshot removes the snapshot of src, nil for one whose id is not in the journal. Nothing
// waits for a cluster that does not answer: src may be left because of that.
func (e *Env) removeSnapshot(ctx context.Context, s *Spec, was *SrcSnapshot) (left string, err error) {
	name := rbd.SnapshotName(s.MigrationID)
	found, err := e.images.Snapshot(ctx, s.Src.Path, name, false)
	if err == nil {
		if found.ID == 0 || was != nil && found.ID != was.ID {
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
		return "", e.hvError(err)
	}
	e.log.Warn("the snapshot of the source is left", "migration", s.MigrationID, "src", s.Src.Path, "snapshot", name, "err", err)
	return fmt.Sprintf("the snapshot of %s that this move has made is left (%v); remove it: `%s`", s.Src.Path, err, s.removeSnapshotCommand()), nil
}

// snapshotSpec is the snapshot of src as rbd names it.
func (s *Spec) snapshotSpec() string {
	src, err := api.ParseRBD(s.Src.Path)
	if err != nil {
		return s.Src.Path // which it is not, since it was taken
	}
	return src.Spec() + "@" + rbd.SnapshotName(s.MigrationID)
}

func (s *Spec) removeSnapshotCommand() string {
	return api.ShellLine("rbd", "snap", "rm", "--", s.snapshotSpec())
}

// diffCommand shows what was written to src since its snapshot.
func (s *Spec) diffCommand() string {
	src, err := api.ParseRBD(s.Src.Path)
	if err != nil {
		return s.Src.Path
	}
	return api.ShellLine("rbd", "diff", "--from-snap", rbd.SnapshotName(s.MigrationID), "--", src.Spec())
}
