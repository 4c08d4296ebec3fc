// SPDX-License-Identifier: Apache-2.0

package copy

import "context"

// verify reads back the chunks that were not verified during the copy, and a sample of the others.
// It does not read holes of dst.
func (s *stream) verify(ctx context.Context) error {
	s.table.forgetSample()
	mismatch := newFirstMismatch()
	if s.base != nil {
		if err := s.base.verify(ctx, s.table, mismatch); err != nil {
			return err
		}
	}
	s.meter.begin(PhaseVerify, s.table.verifiedBytes())
	check := func(ctx context.Context, sp span, buf []byte) error {
		if sp.hole {
			return s.verifyHole(sp, mismatch)
		}
		if mismatch.before(sp.off) {
			return nil
		}
		differs, err := s.readBack(ctx, sp.firstChunk(), buf)
		switch {
		case err != nil:
			return err
		case differs:
			mismatch.found(s.locate(buf[:sp.n], sp.off))
		}
		s.meter.add(sp.n, sp.n)
		return nil
	}
	if err := sweep(ctx, s.spec.bestDepth(), chunkBytes, spans(s.dst.Size(), s.table.isVerified, s.dst), check); err != nil {
		return err
	}
	return mismatch.err(s.spec.Src.Path, s.spec.Dst.Path)
}

func (s *stream) verifyHole(sp span, mismatch *firstMismatch) error {
	for i := range sp.chunks() {
		chunk := sp.firstChunk() + i
		if s.table.get(chunk) != s.table.zeroHash(chunk) {
			off := int64(chunk) * chunkBytes
			mismatch.found(s.locate(zeroBlock[:s.table.bytesOf(chunk)], off))
			break
		}
	}
	s.meter.add(sp.n, 0)
	return nil
}
