// SPDX-License-Identifier: Apache-2.0

package copy

const (
	// reliefLooks are the looks at a guest whose copy gives way no further after which it is
	// judged whether that is worth it: a second. A copy that was let go is judged from
	// letGoLooks on.
	reliefLooks = 10
	letGoLooks  = 5
	// reliefSmoothing is the weight of a look when there were many.
	reliefSmoothing = 0.1
	// A copy is let go where its guest loses less than letGoBelow times as much then, by the one
	// look that there was, which may be wrong; and held back again where the guest loses less
	// than holdBelow of it by that. To be let go once more it has to lose less than holdBelow
	// the other way round, so that the copy does not waver.
	letGoBelow, holdBelow = 2.0, 0.8
)

// reliefWatch tells whether it is worth it for a guest that a copy gives way. To give way shortens
// what a request of the guest takes longer, and lengthens the copy, for all of which they take
// longer. The guest loses the product of the two. Beside a copy with which it shares a disk it
// loses much less if the copy gives way, since what waits in the queue of the disk grows faster
// than the speed. Where the guest waits for the processors, or for its own overlay, it takes as
// long beside a slow copy, and loses more.
type reliefWatch struct {
	held, full lossMean
	// letGo: giving way was found to be not worth it.
	letGo bool
	// again: the copy was let go and held back again, so that full is of that.
	again bool
}

// lossMean is the mean of several looks at a guest and a copy.
type lossMean struct {
	looks  int
	excess float64 // by how much requests take longer, as a part of what they take without the copy
	bytes  float64 // that the copy moves in a look
}

// add takes a look. From some looks on the older ones count for less and less.
func (m *lossMean) add(s strain, moved int64) {
	if s.worst == 0 { // nothing is known that was learned
		return
	}
	m.looks++
	weight := max(1/float64(m.looks), reliefSmoothing)
	m.excess += weight * (s.excess - m.excess)
	m.bytes += weight * (float64(moved) - m.bytes)
}

// less reports whether a guest loses less than times what it loses beside the other copy.
func (m *lossMean) less(times float64, other lossMean) bool {
	return m.excess*other.bytes < times*other.excess*m.bytes
}

// whileHeld takes a look at a guest whose copy gives way no further.
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

// whileLetGo takes a look at a guest whose copy was let go.
func (w *reliefWatch) whileLetGo(s strain, moved int64) {
	w.full.add(s, moved)
	if w.full.looks >= letGoLooks && w.held.less(holdBelow, w.full) {
		w.letGo = false
	}
}
