// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"time"

	"github.com/volferry/volferry/registry/internal/workflow"
)

const (
	// fewUnits is how many dirty units of a host are not worth another round.
	fewUnits = 64
	// pauseBase is what a pause takes besides the copying.
	pauseBase = 2 * time.Second
)

// mayPause says whether what was written in the last round is copied within the time that
// the guests may stand still.
func mayPause(l *workflow.Live) bool {
	for _, h := range l.Hosts {
		if h.Dirty < fewUnits*l.UnitBytes {
			continue
		}
		if h.Copied == 0 || pauseBase+time.Duration(float64(h.Took)*float64(h.Dirty)/float64(h.Copied)) > l.MaxPause {
			return false
		}
	}
	return true
}
