// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"os"
)

// Result describes a finished copy. BytesCopied were written as data, BytesZero made to read as
// zeros, BytesInherited left to the base images, and BytesResumed done by an earlier run. Their
// sum is BytesTotal, except for a clone or an offloaded copy.
type Result struct {
	BytesTotal     int64
	BytesCopied    int64
	BytesZero      int64
	BytesInherited int64
	BytesResumed   int64
	// Cloned: dst shares the space of src.
	Cloned bool
	// Offloaded: no byte passed through this host.
	Offloaded bool
	// Verified: dst was read back and is equal.
	Verified bool
	// Digest is the XXH3-128, in hex, of the hashes of all 1 MiB chunks. It is empty for a clone,
	// an offloaded copy, and a copy that keeps the base images.
	Digest string
}

// Copy makes dst hold the content of src, on stable storage when it returns nil. It writes nothing
// before it knows that the sizes are equal and that no other program uses dst. It returns
// *SizeError, *ReadError, *WriteError (which wraps ENOSPC, EIO, ...), *FlushError, *MismatchError,
// *ImageError, ErrInUse, ErrSameImage, and the error of ctx. After an error the content of dst is
// undefined until a copy succeeds. With a Cursor, a repeated Copy continues.
func Copy(ctx context.Context, spec Spec) (Result, error) {
	sizeBytes, err := spec.sizeBytes(ctx)
	if err != nil {
		return Result{}, err
	}
	lock, err := spec.lockDst()
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = lock.Close() }()
	if spec.Begins != nil {
		if err := spec.Begins(); err != nil {
			return Result{}, err
		}
	}
	result, err := copyEnds(ctx, &spec, lock, newMeter(spec.Progress, sizeBytes))
	if err == nil {
		err = stillNamed(lock)
	}
	if err != nil {
		result.Verified = false
	}
	return result, err
}

// copyEnds clones src if possible. Otherwise the storage copies if it can, else this process.
func copyEnds(ctx context.Context, spec *Spec, lock *os.File, m *meter) (Result, error) {
	src, err := spec.open(ctx, spec.Src)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = src.Close() }()
	dst, err := spec.openDst(ctx, lock)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = dst.Close() }()
	if err := sameFile(lock, dst); err != nil {
		return Result{}, err
	}
	spec.askThin(lock, dst)
	// On some filesystems, data in the page cache has no extents yet.
	if err := src.Flush(); err != nil {
		return Result{}, err
	}
	cloned, err := spec.clone(src, dst)
	switch {
	case err != nil:
		return Result{}, err
	case cloned:
		return finishClone(ctx, spec, src, dst, m)
	}
	offloaded, err := spec.offload(ctx, src, dst, m)
	switch {
	case err != nil:
		return Result{BytesTotal: src.Size()}, err
	case offloaded:
		return compareOffloaded(ctx, spec, src, dst, m)
	}
	pacedSrc, pacedDst := spec.paced(src, dst)
	s := newStream(spec, pacedSrc, pacedDst, m)
	if f := fileOf(dst); spec.DstIsZero && f != nil && f.regular {
		s.zeroGrainBytes = fileBlockBytes
	}
	if spec.KeepBase {
		if s.base, err = newKeptBase(spec, src, dst); err != nil {
			return Result{}, err
		}
	}
	err = s.run(ctx)
	result := Result{
		BytesTotal: src.Size(), BytesCopied: s.copied.Load(), BytesZero: s.zeroed.Load(), BytesInherited: s.inherited.Load(), BytesResumed: s.resumed,
	}
	if err != nil {
		return result, err
	}
	if s.base == nil {
		result.Digest = s.table.digest()
	}
	if spec.Verify {
		err = s.verify(ctx)
		result.Verified = err == nil
	}
	return result, err
}

func compareOffloaded(ctx context.Context, spec *Spec, src, dst End, m *meter) (Result, error) {
	result := Result{BytesTotal: src.Size(), Offloaded: true}
	if !spec.Verify {
		return result, nil
	}
	err := compareEnds(ctx, spec, src, dst, m)
	result.Verified = err == nil
	return result, err
}

func finishClone(ctx context.Context, spec *Spec, src, dst End, m *meter) (Result, error) {
	result := Result{BytesTotal: src.Size(), Cloned: true}
	m.begin(PhaseClone, src.Size())
	m.begin(PhaseFlush, src.Size())
	err := dst.Flush()
	if err == nil && spec.Verify {
		err = compareEnds(ctx, spec, src, dst, m)
		result.Verified = err == nil
	}
	return result, err
}
