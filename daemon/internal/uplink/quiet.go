// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// reportEvery is how often this host is looked at, and how often the registry hears
	// of it if that has not said something else (quietFor).
	reportEvery = 5 * time.Second
	// quietMax bounds for how long a registry may have a host keep silent.
	quietMax = time.Minute
	// reportPause keeps a host on which much changes from reporting all the time.
	reportPause = 300 * time.Millisecond
)

// quietFor is how long the registry wants to hear nothing of a host of which there is nothing
// new. It says so in its answers, and the more hosts it has, the longer it is.
func (u *Uplink) quietFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return min(max(reportEvery, time.Duration(u.host.ReportEverySeconds)*time.Second), quietMax)
}

// heardLately says whether the registry need not be called for a report, because there is nothing
// new in it and it wants to hear of this host later. The caller holds reporting.
func (u *Uplink) heardLately(r api.HostReport) bool {
	now := time.Now()
	// Reports are reportPause late now and then, and are not to be a whole reportEvery late for that.
	return u.Up() && len(r.Migrations) == 0 && now.Sub(u.lastReport.heard) < u.quietFor()-reportPause &&
		u.lastReport.covers(r, now, u.quietFor())
}
