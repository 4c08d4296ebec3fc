// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// seal is the stamp of a src that nobody writes from now on.
func (e *Env) seal(ctx context.Context, s *Spec) (*image.Stamp, error) {
	stamp, err := e.stampToKeep(ctx, s.Src.Path)
	return &stamp, err
}

// stampToKeep is the stamp of an image, for the journal. QEMU's flushes leave the time of modification in memory, and a host
// that lost its power would come back with an older time, as if somebody had written. So it is put on stable storage first,
// but for an image at an address, of which the stamp has the size alone.
func (e *Env) stampToKeep(ctx context.Context, path string) (image.Stamp, error) {
	if !api.IsNetwork(path) {
		if err := e.images.Flush(ctx, path); err != nil {
			return image.Stamp{}, err
		}
	}
	return e.images.Stamp(ctx, path)
}

// sealed refuses a src that was written since it was frozen, by whomever: the content of the
// overlay, or of a copy, belongs to a src that is gone, and a fold or a switch would lose
// what was written. The one exception is a cancel that has begun to write the overlay back.
// The time of modification and the size of a file tell, or the kernel's counters of a block
// device, as long as the host is not rebooted.
func (e *Env) sealed(ctx context.Context, s *Spec, opID string) error {
	if s.Method != MethodOverlay && s.Method != MethodOffline {
		return nil
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil || p.Seal == nil || p.Folding {
		return err
	}
	now, err := e.images.Stamp(ctx, s.Src.Path)
	if err != nil || !now.WrittenSince(*p.Seal) {
		return e.hvError(err)
	}
	return written(s, p.Seal)
}

// sealedUnlessCommitted is sealed, unless a commit of the overlay is at work: a person has
// begun it, it writes src as a cancel would, and the cancel takes it up.
func (e *Env) sealedUnlessCommitted(ctx context.Context, s *Spec, disk *diskState, opID string) error {
	if disk.active && disk.live == OnOverlay && disk.ours(toSrc, s) != nil {
		return nil
	}
	return e.sealed(ctx, s, opID)
}

func written(s *Spec, seal *image.Stamp) *api.Error {
	when := "when it was frozen"
	if seal.ModifiedNS != 0 {
		when += " it had last been written at " + time.Unix(0, seal.ModifiedNS).UTC().Format(time.RFC3339Nano)
	}
	return api.Errorf(api.CodeChainChanged,
		"%s was written since the migration of volume %s began, though nothing should: by a block job or a start of its guest on it, or by another program (%s). "+
			"What the overlay holds belongs to it as it was then, so nothing was folded or switched, and both are kept; docs/how-to/recover.md (A source that was written) says what can be done",
		s.Src.Path, s.VolumeName, when)
}

// sealedOrSame is sealed, but compares the content of src if its stamp has changed: a program
// may have touched src without changing it. Src can be compared with the copy only if the
// copy was made of the frozen src, and before part of the overlay came to dst.
func (e *Env) sealedOrSame(ctx context.Context, s *Spec, opID string) error {
	refused := e.sealed(ctx, s, opID)
	if api.CodeOf(refused) != api.CodeChainChanged {
		return refused
	}
	p, err := e.history.Facts(ctx, s, opID)
	if err != nil {
		return err
	}
	known, err := e.history.Copied(ctx, s)
	if err != nil {
		return err
	}
	if !known || p.Completing || s.ExternalCopy || s.Verify != VerifyFull {
		return refused
	}
	if err := e.compare(ctx, s, s.SrcChain(), s.DstChain(), s.SizeBytes()); err != nil {
		if api.CodeOf(err) == api.CodeCopyMismatch {
			return refused
		}
		return err
	}
	e.log.Warn("the source was touched since the migration began, and has the same content", "migration", s.MigrationID, "src", s.Src.Path)
	return nil
}
