// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// reportEvery is the interval of looks at this host, and of reports unless the registry has
	// set another (quietFor).
	reportEvery = 5 * time.Second
	// quietMax bounds the silence that a registry may request, and quietUnpolled bounds it without
	// an open poll for tasks: a fence ends a poll at once, but without a poll only the host's next
	// report detects it.
	quietMax      = 5 * time.Minute
	quietUnpolled = time.Minute
	// fetchWait is the normal length of a poll for tasks; rare reports lengthen it (pollFor).
	fetchWait = 20 * time.Second
	// reportPause limits the rate of a fast-changing host's reports.
	reportPause = 300 * time.Millisecond
)

// quietFor returns the registry's interval between reports of an unchanged host, which grows with
// the number of hosts.
func (u *Uplink) quietFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return min(max(reportEvery, time.Duration(u.host.ReportEverySeconds)*time.Second), quietMax)
}

// heardLately reports whether the report may be omitted: only free space is new, and the registry
// wants the next report later. The caller holds reporting.
func (u *Uplink) heardLately(r api.HostReport) bool {
	quiet := u.quietFor()
	if u.polling.Load() == 0 {
		quiet = min(quiet, quietUnpolled)
	}
	// Reports may be reportPause late, and must not wait another reportEvery for that.
	return u.Up() && len(r.Migrations) == 0 && time.Since(u.lastReport.heard) < quiet-reportPause &&
		u.lastReport.says(r, false)
}

// pollFor returns the length of the next poll for tasks: until just before a report is due, which
// then uses the poll's connection (reportAfterPoll).
func (u *Uplink) pollFor() time.Duration { return max(fetchWait, u.quietFor()-reportEvery) }

// reportAfterPoll makes the report that is about to be due, after a poll of the whole length wait,
// and after the first, shorter poll, so that polls and reports stay in phase. A report during a
// poll would need a second connection: a TLS handshake for each report.
func (u *Uplink) reportAfterPoll(ctx context.Context, began time.Time, wait time.Duration) {
	if u.quietFor() <= fetchWait || time.Since(began) < wait-reportEvery || u.Admit() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout) // tasks wait during the report
	defer cancel()
	// The next beat makes up for a failed report.
	_, _ = u.report(ctx, func(api.HostReport) bool { return u.lastReport.heard.After(began) })
}
