// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StepCopy makes dst equal to the frozen src. After any interruption it continues from its cursor.
func (e *Env) StepCopy() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.CheckSizes(ctx, s); err != nil {
			return err
		}
		if err := e.seal.Sealed(ctx, s, r.OpID()); err != nil {
			return err
		}
		if !s.SrcKind().Witnessed {
			if err := e.look.OthersHaveSrc(ctx, s); err != nil {
				return err
			}
		}
		zero, err := e.dstIsZero(ctx, r, s)
		if err != nil {
			return err
		}
		fingerprint, err := e.seal.MayWriteDst(ctx, s)
		if err == nil {
			err = e.place.Allocate(ctx, s)
		}
		if err != nil {
			return err
		}
		ctx, cancel := e.move.WhileOurs(ctx, s)
		defer cancel()
		remark := ""
		offload := e.offload(ctx, s, func(pool string, err error) {
			remark = fmt.Sprintf("pool %s was asked to copy by itself and did not, so that Volferry did (%v)", pool, err)
		})
		e.progress.GoesOn(s.MigrationID)
		res, err := e.copier.Copy(ctx, move.CopyRequest{
			Key: s.CopyKey(), Src: s.SrcChain(), Dst: s.DstChain(), SizeBytes: s.SizeBytes(), DstPrint: fingerprint,
			DstIsZero: zero, Thick: s.Allocation == api.AllocationThick, Offload: offload,
			Begins:     func() error { return r.Note(ctx, copyNote{zero, move.WritesNote{Writes: true}}) },
			Options:    func() api.CopyOptions { return e.move.CopyOptions(s) },
			GuestStats: e.GuestStats(s),
			Progress:   func(p move.Progress) { e.progress.Set(s.MigrationID, p) },
		})
		if err != nil {
			return e.withCopied(s, err)
		}
		err = e.seal.Sealed(ctx, s, r.OpID()) // src may have changed meanwhile
		if err == nil && DstIsUneven(s) {
			err = e.images.FillFirstBlock(ctx, s.Dst.Path)
		}
		if err == nil {
			err = e.place.Allocate(ctx, s)
		}
		if err != nil {
			return err
		}
		res.Remark = remark
		return r.SetOutput(res)
	}
	return seal.Provided(move.Step(CopyStep, do, nil, nil), e.seal.SrcUnchanged, e.seal.DstUnchanged)
}

// CopyStep is the name of StepCopy.
const CopyStep = "copy"

const copiedDetail = "copied_bytes"

// withCopied adds the progress of a failed copy to its error: the next copy continues there.
func (e *Env) withCopied(s *move.Spec, err error) error {
	failed, plain := err.(*api.Error) //nolint:errorlint // keep errors that are typed for the runner
	p, known := e.progress.Get(s.MigrationID)
	if !plain || !known || failed.Code == api.CodeCopyMismatch { // then the copy begins again
		return err
	}
	done := p.BytesDone
	if phase := copy.Phase(p.Phase); phase == copy.PhaseFlush || phase == copy.PhaseVerify {
		done = p.BytesTotal
	}
	with := &api.Error{Code: failed.Code, Message: failed.Message, Details: maps.Clone(failed.Details)}
	return with.With(copiedDetail, done)
}

// CopiedBytes returns the progress of a failed copy.
func CopiedBytes(st *op.Status) (done int64, ok bool) {
	if st.Failure == nil {
		return 0, false
	}
	switch n := st.Failure.Details[copiedDetail].(type) {
	case int64:
		return n, true
	case float64: // from the journal
		return int64(n), true
	}
	return 0, false
}

// DstIsUneven reports whether dst is a raw file that QEMU may be unable to write with O_DIRECT:
// its size is no multiple of the largest alignment that QEMU may assume for a file that begins
// with a hole.
func DstIsUneven(s *move.Spec) bool {
	return s.Dst.Format == api.FormatRaw && s.DstKind().Filesystem && s.Dst.WholeBytes()%image.MaxAlignBytes != 0
}

// copyNote records the state of dst before the first byte is copied, and that dst is about to be
// written.
type copyNote struct {
	DstIsZero bool `json:"dst_is_zero"`
	move.WritesNote
}

// dstIsZero reports whether dst reads as zeros where the copy does not write: the migration made
// dst as a file or as qcow2, and dst was empty when the copy began. A new raw block device may
// have old data.
func (e *Env) dstIsZero(ctx context.Context, r *op.Run, s *move.Spec) (bool, error) {
	if s.KeepsBase() || !s.DstOnDevice() && !s.CreatesFile() {
		return false, nil
	}
	var note copyNote
	again, err := r.Noted(CopyStep, &note)
	switch {
	case err != nil || again:
		return note.DstIsZero, err
	case s.DstOnDevice():
		if note.DstIsZero, err = e.images.Blank(ctx, s.Dst); err != nil {
			return false, err
		}
		return note.DstIsZero, r.Note(ctx, note)
	}
	info, err := e.images.Inspect(ctx, s.Dst)
	if err != nil {
		return false, err
	}
	note.DstIsZero = info.AllocatedBytes == 0 || (s.Dst.Format == api.FormatQcow2 && info.AllocatedBytes <= EmptyImageBytes)
	return note.DstIsZero, r.Note(ctx, note)
}

// GuestStats returns a reader of the disk's statistics, or nil if no instance has the volume.
func (e *Env) GuestStats(s *move.Spec) func(context.Context) (*hv.DiskStats, error) {
	if !s.Attached() {
		return nil
	}
	return func(ctx context.Context) (*hv.DiskStats, error) {
		return e.hv.DiskStats(ctx, s.InstanceID, s.Target)
	}
}

// CheckSizes refuses a dst if its size differs from src: QEMU would refuse it later, and qemu-img
// would resize it. If the volume is only the beginning of an image, only the volume's size counts.
func (e *Env) CheckSizes(ctx context.Context, s *move.Spec) error {
	src, err := e.images.Inspect(ctx, s.Src)
	if err != nil {
		return e.move.HVError(err) // libvirt returns the key of a cluster
	}
	dst, err := e.images.Inspect(ctx, s.Dst)
	if err != nil {
		return e.move.HVError(err)
	}
	srcBytes, dstBytes := s.Src.VolumeBytes(src.SizeBytes), s.Dst.VolumeBytes(dst.SizeBytes)
	if srcBytes != dstBytes {
		return move.SizeMismatch(s.Src.Path, srcBytes, s.Dst.Path, dstBytes)
	}
	return nil
}

// VerifyStep is the name of StepVerifyCopy.
const VerifyStep = "verify_copy"

// VerifiedOutput records that dst equalled src, byte for byte.
type VerifiedOutput struct {
	Compared bool `json:"compared"`
	// Touched: src was written since its freeze, and still equals dst.
	Touched bool `json:"touched,omitempty"`
}

// StepVerifyCopy fails the complete op unless dst is a copy of src: the built-in copier has made
// it, or all bytes are compared now. The operator may turn the comparison off. A copy is compared
// only once: an interrupted fold leaves a part of the overlay in dst, which the next fold writes
// again.
func (e *Env) StepVerifyCopy() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		e.progress.Clear(s.MigrationID)
		if err := e.CheckSizes(ctx, s); err != nil {
			return err
		}
		if err := e.CheckNotResized(ctx, s); err != nil {
			return err
		}
		if err := e.look.OthersHaveSrc(ctx, s); err != nil {
			return err
		}
		touched, err := e.seal.SealedOrSame(ctx, s, r.OpID())
		if err != nil {
			return err
		}
		if err := e.look.CheckBitmapsKeptNow(ctx, s); err != nil {
			return err
		}
		if touched {
			if err := r.SetOutput(VerifiedOutput{Touched: true}); err != nil {
				return err
			}
		}
		if err := e.dstIsAnswered(ctx, s); err != nil {
			return err
		}
		known, err := e.history.Copied(ctx, s)
		if err != nil || known || s.Verify == move.VerifyNone {
			return err
		}
		err = e.move.Compare(ctx, s, s.SrcChain(), s.DstChain(), s.SizeBytes())
		if api.CodeOf(err) == api.CodeCopyMismatch { // the next copy begins again
			return errors.Join(err, e.copier.Forget(ctx, s.CopyKey()))
		}
		if err != nil {
			return err
		}
		return r.SetOutput(VerifiedOutput{Compared: true})
	}
	return seal.Provided(move.Step(VerifyStep, do, nil, nil), e.seal.SrcUnchanged, e.seal.DstUnchanged)
}

// EmptyImageBytes is the largest size of an image without data: an empty qcow2's tables.
const EmptyImageBytes = 1 << 20

// CheckNotResized refuses to complete the move if the disk was enlarged during the move: the
// overlay has the new size and dst the old, and QEMU mirrors only into an image of the same size.
// A cancel makes src as large as the overlay.
func (e *Env) CheckNotResized(ctx context.Context, s *move.Spec) error {
	if s.Method != move.MethodOverlay || !s.Attached() {
		return nil
	}
	_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
	var size *image.SizeError
	if !errors.As(err, &size) {
		return nil // the use of the overlay finds other faults
	}
	return api.Errorf(api.CodeSizeMismatch,
		"cannot complete the migration of volume %s: its disk was resized from %d to %d bytes while it moves, and %s has been made for the old size; cancel it while the instance runs (`%s`), which makes %s as large, and move the volume again",
		s.VolumeName, s.OverlayBytes(), size.Bytes, s.Dst.Path, shell.Line("volferryctl", "migration", "cancel", s.MigrationID), s.Src.Path).
		With("size_bytes", s.OverlayBytes()).With("found_bytes", size.Bytes)
}
