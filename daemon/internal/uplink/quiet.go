// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// reportEvery is how often this host is looked at, and how often the registry hears
	// of it if that has not said something else (quietFor).
	reportEvery = 5 * time.Second
	// quietMax bounds for how long a registry may have a host keep silent, and quietUnpolled does
	// while no poll for tasks is open. A fence ends a poll, so its host is told at once; without
	// one it is told with its next report.
	quietMax      = 5 * time.Minute
	quietUnpolled = time.Minute
	// fetchWait is how long the registry may hold back that it has no task. One with so many hosts
	// that it wants to hear of each more rarely may for longer, see pollFor.
	fetchWait = 20 * time.Second
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

// heardLately reports whether the registry need not be called for a report, because there is
// nothing new in it, but for what pools have free, and it wants to hear of this host later. The
// caller holds reporting.
func (u *Uplink) heardLately(r api.HostReport) bool {
	quiet := u.quietFor()
	if u.polling.Load() == 0 {
		quiet = min(quiet, quietUnpolled)
	}
	// Reports are reportPause late now and then, and are not to be a whole reportEvery late for
	// that.
	return u.Up() && len(r.Migrations) == 0 && time.Since(u.lastReport.heard) < quiet-reportPause &&
		u.lastReport.says(r, false)
}

// pollFor is how long the next poll for tasks may last: until just before a report is due, which is
// then made on the connection of the poll (reportAfterPoll). A registry of before takes no polls
// longer than a minute, and wants to hear of a host oftener than that.
func (u *Uplink) pollFor() time.Duration { return max(fetchWait, u.quietFor()-reportEvery) }

// reportAfterPoll makes the report that is about to be due, after a poll that has lasted for all of
// wait, so that nothing was heard of this host meanwhile. It is made after the first, shorter poll
// too, and so both go on in the same time. Made while the next poll is open it would need a second
// connection, which is closed again before the report after that: a handshake for each report.
func (u *Uplink) reportAfterPoll(ctx context.Context, began time.Time, wait time.Duration) {
	if u.quietFor() <= fetchWait || time.Since(began) < wait-reportEvery || u.Admit() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout) // tasks wait meanwhile
	defer cancel()
	// What it comes to is published; the next look at the host makes up for one that failed.
	_, _ = u.report(ctx, func(api.HostReport) bool { return u.lastReport.heard.After(began) })
}
