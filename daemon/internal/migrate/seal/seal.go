// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// FrozenOutput is the seal of src: the data that let a later check find writes to src.
type FrozenOutput struct {
	At       time.Time         `json:"at"`
	Src      *image.Stamp      `json:"src,omitempty"`
	Snapshot *move.SrcSnapshot `json:"snapshot,omitempty"`
	// NotFrozen names the process of QEMU that still had src open for writing, or is empty. If
	// set, the start has failed, and the guest is brought back.
	NotFrozen string `json:"not_frozen,omitempty"`
	// NotStored is set if src could not store writes. This has the same consequence.
	NotStored string `json:"not_stored,omitempty"`
}

// Seal returns the seal of a src that no program writes from now on. step is the running step's
// name. An RBD image gets a snapshot, since Ceph does not report when an image was written.
func (e *Env) Seal(ctx context.Context, r *op.Run, s *move.Spec, step string) (out FrozenOutput, err error) {
	if s.SrcKind().Snapshots {
		out.Src = &image.Stamp{SizeBytes: s.Src.SizeBytes}
		out.Snapshot, err = e.snapshotSrc(ctx, r, s, step)
	} else {
		var stamp image.Stamp
		stamp, err = e.StampToKeep(ctx, s.Src.Path)
		out.Src = &stamp
	}
	out.At = e.now().UTC()
	return out, err
}

// StampToKeep returns an image's stamp for the journal. QEMU's flushes leave a file's time of
// modification in memory; after a power failure the file would have an older time, as if it had
// been written. So StampToKeep first flushes the image, except an image on the network: its
// stamp has only the size.
func (e *Env) StampToKeep(ctx context.Context, path string) (image.Stamp, error) {
	if medium.Of(path).Witnessed {
		if err := e.images.Flush(ctx, path); err != nil {
			return image.Stamp{}, err
		}
	}
	return e.images.Stamp(ctx, path)
}

// Sealed refuses a src that any program wrote since its freeze: the overlay, or a copy, belongs to
// the old content, and a fold or a switch would lose the write. It allows writes once a cancel has
// begun to fold the overlay into src. The evidence is a file's time of modification and size, the
// kernel's counters of a block device until the host reboots, or an RBD image's snapshot.
func (e *Env) Sealed(ctx context.Context, s *move.Spec, opID string) error {
	_, err := e.lookAtSeal(ctx, s, opID)
	return err
}

func (e *Env) lookAtSeal(ctx context.Context, s *move.Spec, opID string) (lost bool, err error) {
	if s.Method != move.MethodOverlay && s.Method != move.MethodOffline {
		return false, nil
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil || p.Seal == nil || p.Folding {
		return false, err
	}
	now, err := e.images.Stamp(ctx, s.Src.Path)
	if err != nil {
		return false, e.move.HVError(err)
	}
	changed := ofVolume(now, s.Src).WrittenSince(ofVolume(*p.Seal, s.Src))
	if !changed {
		changed, lost, err = e.writtenSinceSnapshot(ctx, s, p.Snapshot)
	}
	if err != nil || !changed {
		return lost, err
	}
	return false, written(s, p.Seal, p.Snapshot)
}

// LeftSrcNote has the stamp of a src that the move did not freeze: from the pause of a mirror, or
// from when no process had src open any more.
type LeftSrcNote struct {
	Left *image.Stamp `json:"left,omitempty"`
}

// LeftUnknown is the log message about a src without a LeftSrcNote.
const LeftUnknown = "nobody will be able to tell whether a source is written after its volume has left it"

// SealsLeft makes a step note the stamp of src after its Do. After this step no process may have
// src open.
func (e *Env) SealsLeft(st op.Step) op.Step {
	return Followed(st, func(ctx context.Context, r *op.Run, s *move.Spec) error {
		return e.SealLeft(ctx, r, s.Src.Path, st.Name)
	})
}

// SealLeft notes the stamp of a src that its volume leaves. It keeps the first stamp when the step
// is tried again, so that a write between two tries is found. If the stamp cannot be read, the
// move does not fail, but later writes to src stay unknown.
func (e *Env) SealLeft(ctx context.Context, r *op.Run, src, step string) error {
	var note LeftSrcNote
	if noted, err := r.Noted(step, &note); err != nil || noted && note.Left != nil || !medium.Of(src).Witnessed {
		return err
	}
	stamp, err := e.StampToKeep(ctx, src)
	if err != nil {
		e.log.Warn(LeftUnknown, "path", src, "err", err)
		return ctx.Err()
	}
	return r.Note(ctx, LeftSrcNote{&stamp})
}

// ChangeSinceLeft returns whether src was written since its volume left it. seal is the stamp of
// src from then, or from its freeze. why is the reason for an unknown change.
func (e *Env) ChangeSinceLeft(ctx context.Context, s *move.Spec, seal *image.Stamp) (change image.Change, why string, err error) {
	kind := s.SrcKind()
	if !kind.Witnessed {
		return image.ChangeUnknown, "nothing is kept of " + kind.Name + " that would tell", nil
	}
	now, err := e.images.Stamp(ctx, s.Src.Path)
	if err != nil {
		return image.ChangeUnknown, "", err
	}
	if seal != nil {
		was := ofVolume(*seal, s.Src)
		seal = &was
	}
	change, why = ofVolume(now, s.Src).ChangeSince(seal)
	if change == image.Unchanged && kind.OwnWrites && s.LedByRegistry() {
		return image.ChangeUnknown, "it is a device that other hosts have too, and this host counts its own writes alone", nil
	}
	return change, why, nil
}

// ofVolume limits the size in a stamp to the volume, if the volume is only the beginning of the
// image.
func ofVolume(stamp image.Stamp, l api.Location) image.Stamp {
	stamp.SizeBytes = l.VolumeBytes(stamp.SizeBytes)
	return stamp
}

// SealedUnlessCommitted is Sealed, but allows writes to src while a block commit of the overlay
// into src runs: an operator has begun the commit, it writes what a cancel would write, and the
// cancel adopts it.
func (e *Env) SealedUnlessCommitted(ctx context.Context, s *move.Spec, disk *move.DiskState, opID string) error {
	if disk.Active && disk.Live == move.OnOverlay && disk.Ours(move.ToSrc, s) != nil {
		return nil
	}
	return e.Sealed(ctx, s, opID)
}

func written(s *move.Spec, seal *image.Stamp, snapshot *move.SrcSnapshot) *api.Error {
	when := "when it was frozen"
	switch {
	case snapshot != nil:
		when = "`" + diffCommand(s) + "` shows where it differs from when it was frozen"
	case seal.ModifiedNS != 0:
		when += " it had last been written at " + time.Unix(0, seal.ModifiedNS).UTC().Format(time.RFC3339Nano)
	}
	return api.Errorf(api.CodeChainChanged,
		"%s was written since the migration of volume %s began, though nothing should: by a block job or a start of its guest on it, or by another program (%s). "+
			"What the overlay holds belongs to it as it was then, so nothing was folded or switched, and both are kept; docs/how-to/recover.md (A source that was written) says what can be done",
		s.Src.Path, s.VolumeName, when)
}

// SealedOrSame is Sealed, but compares src with dst if the stamp of src has changed or the
// evidence is lost: a program may have touched src without changing its content. It compares them
// only if dst is a copy of the frozen src without any part of the overlay. touched reports that
// src and dst were compared and are equal.
func (e *Env) SealedOrSame(ctx context.Context, s *move.Spec, opID string) (touched bool, err error) {
	lost, refused := e.lookAtSeal(ctx, s, opID)
	if !lost && api.CodeOf(refused) != api.CodeChainChanged {
		return false, refused
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil {
		return false, err
	}
	known, err := e.history.Copied(ctx, s)
	if err != nil {
		return false, err
	}
	if !known || p.Completing || s.ExternalCopy || s.Verify != move.VerifyFull {
		return false, refused
	}
	if err := e.move.Compare(ctx, s, s.SrcChain(), s.DstChain(), s.SizeBytes()); err != nil {
		if api.CodeOf(err) == api.CodeCopyMismatch {
			return false, written(s, p.Seal, p.Snapshot)
		}
		return false, err
	}
	e.log.Warn("the source was touched since the migration began, or nobody can tell, and has the same content", "migration", s.MigrationID, "src", s.Src.Path)
	return true, nil
}

// SealedStill repeats the check of Sealed for an RBD src, right before the guest is paused for the
// switch. It finds writes of other programs to src during the block job. Other images are checked
// for the last time before the job.
func (e *Env) SealedStill(ctx context.Context, s *move.Spec) error {
	if !s.SrcKind().Snapshots {
		return nil
	}
	p, err := e.history.Facts(ctx, s, "")
	if err != nil || p.Touched {
		return err
	}
	return e.Sealed(ctx, s, "")
}
