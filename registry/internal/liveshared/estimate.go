// SPDX-License-Identifier: Apache-2.0

package liveshared

import (
	"time"

	"github.com/volferry/volferry/registry/internal/workflow"
)

// fewUnits is how many dirty units of a host are not worth another round.
const fewUnits = 64

// mayPause says whether what was written in the last round is copied within the time that
// the guests may stand still.
func mayPause(l *workflow.Live) bool {
	for _, h := range l.Hosts {
		if h.Dirty < fewUnits*l.UnitBytes {
			continue
		}
		if h.Copied == 0 || workflow.LivePauseBase+time.Duration(float64(h.Took)*float64(h.Dirty)/float64(h.Copied)) > l.MaxPause {
			return false
		}
	}
	return true
}
