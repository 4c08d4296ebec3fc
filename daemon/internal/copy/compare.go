// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
)

// Compare compares Src and Dst after another program's copy. It returns nil for equal bytes, a
// *MismatchError with the first different offset, or a *SizeError. Src may be an overlay over Dst.
// It uses only Src, Dst, Passphrase, Network, Files and Progress.
func Compare(ctx context.Context, spec Spec) error {
	return compare(ctx, &Spec{Src: spec.Src, Dst: spec.Dst, Network: spec.Network, Files: spec.Files, Passphrase: spec.Passphrase, Progress: spec.Progress})
}

func compare(ctx context.Context, spec *Spec) error {
	if spec.atAddress() {
		return compareOverlaid(ctx, spec)
	}
	sizeBytes, err := spec.sameSize(ctx)
	if err != nil {
		return err
	}
	if err := spec.notDst(spec.Src.Path); err != nil {
		return err
	}
	src, err := spec.open(ctx, spec.Src)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := spec.open(ctx, spec.Dst)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close() }()
	return compareStored(ctx, spec, src, dst, newMeter(spec.Progress, sizeBytes))
}

// compareOverlaid compares an overlay Src with Dst if Dst or the image below Src is on the
// network.
func compareOverlaid(ctx context.Context, spec *Spec) error {
	dst, err := spec.open(ctx, spec.Dst)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close() }()
	src, err := spec.openOverlaid(ctx, dst)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	return compareStored(ctx, spec, src, dst, newMeter(spec.Progress, dst.Size()))
}

func compareStored(ctx context.Context, spec *Spec, src, dst End, m *meter) error {
	// Another program's data in the page cache is not stored yet.
	if err := errors.Join(src.Flush(), dst.Flush()); err != nil {
		return err
	}
	return compareEnds(ctx, spec, src, dst, m)
}

func compareEnds(ctx context.Context, spec *Spec, src, dst End, m *meter) error {
	src, dst = spec.paced(src, dst)
	m.begin(PhaseVerify, 0)
	mismatch := newFirstMismatch()
	check := func(ctx context.Context, sp span, buf []byte) error {
		if sp.hole || mismatch.before(sp.off) {
			m.add(sp.n, 0)
			return nil
		}
		if err := spec.Limit.wait(ctx, sp.n); err != nil {
			return err
		}
		a, b := buf[:sp.n], buf[chunkBytes:chunkBytes+sp.n]
		if err := readFull(src, spec.Src.Path, a, sp.off); err != nil {
			return err
		}
		if err := readFull(dst, spec.Dst.Path, b, sp.off); err != nil {
			return err
		}
		if i := firstDifference(a, b); int64(i) < sp.n {
			mismatch.found(sp.off + int64(i))
		}
		m.add(sp.n, sp.n)
		return nil
	}
	if err := sweep(ctx, spec.depth(), 2*chunkBytes, spans(src.Size(), noSkip, src, dst), check); err != nil {
		return err
	}
	return mismatch.err(spec.Src.Path, spec.Dst.Path)
}
