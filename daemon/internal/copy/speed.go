// SPDX-License-Identifier: Apache-2.0

package copy

import "math"

// speedSmoothing is the weight of the last look in the speed of a copy: the mean of about
// three looks.
const speedSmoothing = 1.0 / 3

// speedWatch holds the speed of a copy against what it is while it is not held back. Both are
// in bytes per look.
type speedWatch struct {
	full float64 // 0 where it is not known
	now  float64
}

// learn takes a look while the copy is not held back.
func (w *speedWatch) learn(bytes int64) { w.full, w.now = float64(bytes), float64(bytes) }

// add takes a look.
func (w *speedWatch) add(bytes int64) { w.now += speedSmoothing * (float64(bytes) - w.now) }

// spare is how many times as fast the copy is as it is to be if it keeps share of its speed.
func (w *speedWatch) spare(share float64) float64 {
	if w.full == 0 || share == 0 {
		return math.Inf(1)
	}
	return w.now / (share * w.full)
}
