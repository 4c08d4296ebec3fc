// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"io"
	"maps"
	"slices"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// touch is one operation that may have changed a block.
type touch struct {
	op      workload.Op
	certain bool // it was acknowledged
}

// touches maps every block that some operation may have changed to these
// operations, in the order in which they took effect: an operation begins only
// when those before it on the same block have ended. Those that were not
// acknowledged count up to the limit of their session. An operation that was acknowledged before
// the power was cut is certain only if a flush after it was, too. None is that was acknowledged
// after asOf, if that is not zero.
func (h *History) touches(limits []uint64, cuts []time.Time, asOf time.Time) map[uint64][]touch {
	next := func(at time.Time) int { // the cut that came next, len(cuts) if none did
		n, _ := slices.BinarySearchFunc(cuts, at, func(cut, at time.Time) int {
			if cut.After(at) {
				return 1
			}
			return -1
		})
		return n
	}
	flushed := make([]uint64, len(cuts)) // the last flush before each
	for _, a := range h.Acks {
		if cut := next(a.HostTime); a.Op.Flush && cut < len(cuts) {
			flushed[cut] = max(flushed[cut], a.Op.Seq)
		}
	}
	certain := make(map[uint64]bool, len(h.Acks))
	begun := make(map[uint64]bool, len(h.Acks))
	for _, a := range h.Acks {
		begun[a.Op.Seq] = true
		cut := next(a.HostTime)
		certain[a.Op.Seq] = (cut == len(cuts) || a.Op.Seq <= flushed[cut]) && (asOf.IsZero() || !a.HostTime.After(asOf))
	}
	for i, s := range h.Sessions {
		for seq := s.Base; seq < limits[i]; seq++ {
			begun[seq] = true
		}
	}
	byBlock := make(map[uint64][]touch)
	for _, seq := range slices.Sorted(maps.Keys(begun)) {
		op := h.Stream.At(seq)
		t := touch{op: op, certain: certain[seq]}
		for b := op.Block; b < op.Block+op.Count; b++ {
			byBlock[b] = append(byBlock[b], t)
		}
	}
	return byBlock
}

// limits returns, for each session, the first operation that it cannot have
// begun, by what the guest reported alone.
func (h *History) limits() []uint64 {
	limits := make([]uint64, len(h.Sessions))
	for i, s := range h.Sessions {
		limits[i] = s.next()
	}
	return limits
}

// narrow lowers the limits to what the volume itself tells: where a write is
// not there, the writer was still busy with it, and so at most its depth ahead
// of it. It matters because an operation that may have been begun excuses what
// it would have left.
func (h *History) narrow(volume io.ReaderAt) ([]uint64, error) {
	limits := h.limits()
	touches := h.touches(limits, nil, time.Time{})
	for i, s := range h.Sessions {
		for seq := s.Base; seq < limits[i]; seq++ {
			if slices.Contains(s.Failed, seq) {
				continue
			}
			absent, err := h.absent(volume, seq, touches)
			if err != nil {
				return nil, err
			}
			if absent {
				limits[i] = min(limits[i], seq+s.Depth)
				break
			}
		}
	}
	return limits, nil
}

// absent reports whether the operation is a write without acknowledgement that
// evidently was not done: one of its blocks holds something that no later
// operation can have left.
func (h *History) absent(volume io.ReaderAt, seq uint64, touches map[uint64][]touch) (bool, error) {
	op := h.Stream.At(seq)
	if op.Kind != workload.Write {
		return false, nil
	}
	data := make([]byte, workload.BlockSize)
	for b := op.Block; b < op.Block+op.Count; b++ {
		at := slices.IndexFunc(touches[b], func(t touch) bool { return t.op.Seq == seq })
		if touches[b][at].certain {
			return false, nil
		}
		later := touches[b][at+1:]
		if slices.ContainsFunc(later, func(t touch) bool { return t.op.Kind != workload.Write || t.certain }) {
			continue // zeroes, or newer content, would prove nothing
		}
		if _, err := volume.ReadAt(data, int64(b*workload.BlockSize)); err != nil {
			return false, err
		}
		found, ok := workload.RecordSeq(data)
		if !ok || found == workload.FillSeq || found < seq {
			return true, nil
		}
	}
	return false, nil
}
