// SPDX-License-Identifier: Apache-2.0

package copy

const (
	// reliefLooks is the number of looks (one second) at a limited copy before the pacer checks
	// whether the limit helps; letGoLooks is the number at an unlimited copy.
	reliefLooks     = 10
	letGoLooks      = 5
	reliefSmoothing = 0.1
	// The pacer removes the limit if the guest's loss without it is less than letGoBelow times as
	// high. It sets the limit again if the loss with the limit is less than holdBelow times as
	// high. Removing it again needs a loss below holdBelow too, as hysteresis.
	letGoBelow, holdBelow = 2.0, 0.8
)

// reliefWatch checks whether a limit on the copy helps the guest. A limit shortens the extra
// latency of each guest request, but lengthens the copy, during which all requests have it. The
// guest's loss is the product of the two. On a shared disk a limit reduces the loss, since the
// queue grows faster than the speed. It does not help a guest that waits for the processors, or
// for its own overlay.
type reliefWatch struct {
	held, full lossMean
	// letGo: the limit was not worth it, and was removed.
	letGo bool
	// again: the limit was removed and set again; full has the looks without it.
	again bool
}

type lossMean struct {
	looks  int
	excess float64
	bytes  float64 // moved by the copy per look
}

func (m *lossMean) add(s strain, moved int64) {
	if s.worst == 0 { // no learned latency is known
		return
	}
	m.looks++
	weight := max(1/float64(m.looks), reliefSmoothing)
	m.excess += weight * (s.excess - m.excess)
	m.bytes += weight * (float64(moved) - m.bytes)
}

// less reports whether this loss is less than the other loss multiplied by times.
func (m *lossMean) less(times float64, other lossMean) bool {
	return m.excess*other.bytes < times*other.excess*m.bytes
}

func (w *reliefWatch) whileHeld(s strain, moved int64) {
	w.held.add(s, moved)
	times := letGoBelow
	if w.again {
		times = holdBelow
	}
	if w.held.looks >= reliefLooks && w.full.looks > 0 && w.full.less(times, w.held) {
		w.letGo, w.full = true, lossMean{}
	}
}

func (w *reliefWatch) whileLetGo(s strain, moved int64) {
	w.full.add(s, moved)
	if w.full.looks >= letGoLooks && w.held.less(holdBelow, w.full) {
		w.letGo = false
	}
}
