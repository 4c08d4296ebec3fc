// SPDX-License-Identifier: Apache-2.0

package copy

import "math"

// speedSmoothing is the weight of the last look in the speed of a copy: a mean of about three
// looks.
const speedSmoothing = 1.0 / 3

type speedWatch struct {
	full float64 // 0 if unknown
	now  float64
}

func (w *speedWatch) learn(bytes int64) { w.full, w.now = float64(bytes), float64(bytes) }

func (w *speedWatch) add(bytes int64) { w.now += speedSmoothing * (float64(bytes) - w.now) }

func (w *speedWatch) spare(share float64) float64 {
	if w.full == 0 || share == 0 {
		return math.Inf(1)
	}
	return w.now / (share * w.full)
}
