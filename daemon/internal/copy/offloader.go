// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// offloadStep is the size of the first request, and the least size unless a cap requires less.
	offloadStep = 16 << 20
	// A piece takes pieceTime, or guestPieceTime if a guest must be spared. A rest follows each
	// piece.
	pieceTime      = 2 * time.Second
	guestPieceTime = 500 * time.Millisecond
	restTick       = 100 * time.Millisecond
)

var (
	// answerGrace is how long a stopped copy waits for the answer.
	answerGrace = 10 * time.Second
	// maxOffloadPiece bounds the repeated work after a kill, and the duration of a cancel.
	maxOffloadPiece int64 = 256 << 20
)

type offloader struct {
	*Offload

	spec           *Spec
	dst            End
	meter          *meter
	log            *offloadLog
	bytesPerSecond float64
}

// offload lets the storage make the copy. It returns false, and no error, if Volferry must copy;
// then the storage does not write to dst any more.
func (s *Spec) offload(ctx context.Context, src, dst End, m *meter) (done bool, err error) {
	log, err := openOffloadLog(s.Cursor, s.Src.Path, s.Dst.Path, src.Size())
	if err != nil {
		return false, err
	}
	if s.Offload == nil {
		return false, log.openError(s.Dst.Path, nil)
	}
	o := &offloader{Offload: s.Offload, spec: s, dst: dst, meter: m, log: log}
	if log.open {
		// An unanswered range must be requested again in any case.
		if supported, err := o.ask(ctx, log.off, log.n); err != nil || !supported {
			return false, err
		}
	}
	if !o.Offered || log.streamed {
		return false, nil
	}
	if err := log.begin(); err != nil {
		return false, err
	}
	m.begin(PhaseOffload, log.until)
	for log.until < src.Size() {
		if supported, err := o.piece(ctx, src.Size()); err != nil || !supported {
			return false, err
		}
	}
	return true, nil
}

func (o *offloader) piece(ctx context.Context, sizeBytes int64) (supported bool, err error) {
	off := o.log.until
	n := min(o.pieceBytes(), sizeBytes-off)
	if err := o.spec.Limit.waitAll(ctx, n); err != nil {
		return false, err
	}
	if err := o.rest(ctx, 0); err != nil {
		return false, err
	}
	began := time.Now()
	if supported, err = o.ask(ctx, off, n); err != nil || !supported {
		return false, err
	}
	took := time.Since(began)
	moved := o.log.until - off
	o.bytesPerSecond = float64(moved) / max(took, time.Millisecond).Seconds()
	o.meter.add(moved, moved)
	if o.spec.Pace != nil {
		o.spec.Pace.Moved(moved)
	}
	return true, o.rest(ctx, took)
}

func (o *offloader) pieceBytes() int64 {
	n := int64(offloadStep)
	if o.bytesPerSecond > 0 {
		within := pieceTime
		if o.spec.Pace != nil {
			within = guestPieceTime
		}
		n = int64(o.bytesPerSecond * within.Seconds())
	}
	if limit := o.spec.Limit.bytesPerSecond(); limit > 0 {
		n = min(n, limit)
	}
	n = min(max(n, chunkBytes), maxOffloadPiece)
	unit := o.GranularityBytes
	if chunkBytes%unit == 0 {
		unit = chunkBytes // no block of a device is larger
	}
	return max(n-n%unit, unit)
}

// rest waits before and after each request to the storage, for the guest: a request cannot be
// slowed down.
func (o *offloader) rest(ctx context.Context, took time.Duration) error {
	pace := o.spec.Pace
	for began := time.Now(); pace != nil; {
		_, still := pace.Allow()
		left := time.Duration(float64(took)*(1/pace.Duty()-1)) - time.Since(began)
		if still > maxRest {
			left = max(left, still)
		}
		if left <= 0 {
			break
		}
		select {
		case <-time.After(min(left, restTick)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return ctx.Err()
}

// ask requests a copy of a range, and logs the result. It waits for the answer even if ctx ends:
// otherwise the range must be requested again.
func (o *offloader) ask(ctx context.Context, off, n int64) (supported bool, err error) {
	if err := o.log.asked(off, n); err != nil {
		return false, err
	}
	until, answered, err := o.askInTime(ctx, off, n)
	switch {
	case !answered:
		return false, o.log.openError(o.spec.Dst.Path, errors.Join(context.Cause(ctx), err))
	case err != nil:
		if logErr := o.log.refused(); logErr != nil {
			return false, errors.Join(err, logErr)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			if o.Refused != nil {
				o.Refused(err)
			}
			return false, nil
		}
		return false, fmt.Errorf("the storage cannot copy to %s: %w", o.spec.Dst.Path, err)
	case until <= off || until > o.dst.Size():
		return false, o.log.openError(o.spec.Dst.Path, fmt.Errorf("it says that it has copied up to byte %d", until))
	}
	if f := fileOf(o.dst); f != nil {
		f.cached.Store(true) // this host's cached reads of dst are stale
	}
	if err := o.dst.Flush(); err != nil {
		return false, err
	}
	return true, errors.Join(o.log.copied(until), ctx.Err())
}

func (o *offloader) askInTime(ctx context.Context, off, n int64) (until int64, answered bool, err error) {
	asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(answerGrace):
			giveUp()
		case <-asking.Done():
		}
	})()
	return o.Ask(asking, off, n)
}
