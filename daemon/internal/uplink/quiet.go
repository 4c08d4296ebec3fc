// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// reportEvery is the interval between reads of this host's state, and between reports unless
	// the registry has set a longer interval (quietFor).
	reportEvery = 5 * time.Second
	// quietMax is the longest interval between reports that a registry may set. quietUnpolled is
	// the longest without an open poll for tasks: a fence ends a poll at once, but without a poll
	// only the next report detects it.
	quietMax      = 5 * time.Minute
	quietUnpolled = time.Minute
	// fetchWait is the normal length of a poll for tasks; rare reports lengthen it (pollFor).
	fetchWait   = 20 * time.Second
	reportPause = 300 * time.Millisecond
)

// quietFor returns the interval that the registry has set between reports of an unchanged host.
func (u *Uplink) quietFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return min(max(reportEvery, time.Duration(u.host.ReportEverySeconds)*time.Second), quietMax)
}

// heardLately reports whether the report r may be omitted: only free space is new, and the
// registry does not expect a report yet. The caller holds reporting.
func (u *Uplink) heardLately(r api.HostReport) bool {
	quiet := u.quietFor()
	if u.polling.Load() == 0 {
		quiet = min(quiet, quietUnpolled)
	}
	// A beat may be reportPause early; its report must not wait another reportEvery for that.
	return u.Up() && len(r.Migrations) == 0 && time.Since(u.lastReport.heard) < quiet-reportPause &&
		u.lastReport.says(r, false)
}

// pollFor returns the length of the next poll for tasks. The poll ends just before a report is due
// (reportAfterPoll).
func (u *Uplink) pollFor() time.Duration { return max(fetchWait, u.quietFor()-reportEvery) }

// reportAfterPoll sends the report that is due soon, if the poll lasted its whole length, wait. So
// reports come between polls: a report during a poll would need a second connection, with a TLS
// handshake.
func (u *Uplink) reportAfterPoll(ctx context.Context, began time.Time, wait time.Duration) {
	if u.quietFor() <= fetchWait || time.Since(began) < wait-reportEvery || u.Admit() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout) // tasks wait during the report
	defer cancel()
	// After a failure the next beat reports.
	_, _ = u.report(ctx, func(api.HostReport) bool { return u.lastReport.heard.After(began) })
}
