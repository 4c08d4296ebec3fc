// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// busyReportEvery replaces reportEvery while a migration is open, for users who watch it at the
// registry.
const busyReportEvery = time.Second

// Run sends reports until ctx ends, and handles fences.
func (u *Uplink) Run(ctx context.Context) error {
	for changed := true; ; {
		wait := u.beat(ctx, changed)
		u.once.Do(func() { close(u.ready) })
		if retry.Sleep(ctx, reportPause) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.changed:
			changed = true
		case <-time.After(wait - reportPause):
			changed = false
		}
	}
}

// beat handles a fence, or sends a report, and returns the time until the next beat. If the host
// is unchanged, it calls the registry only when a report is due.
func (u *Uplink) beat(ctx context.Context, changed bool) time.Duration {
	if err := u.comeBack(ctx); err != nil {
		if u.note(err) {
			u.cfg.Log.Warn("this host was fenced and cannot come back yet", "err", err)
		}
		if reportFirst(err) {
			// The report has an epoch that is over, but the registry needs the host's mark from
			// it.
			_, _ = u.report(ctx, always)
		}
		return u.around(retryEvery)
	}
	unless := u.heardLately
	if changed {
		unless = always
	}
	out, err := u.report(ctx, unless)
	switch {
	case err != nil:
		return u.retryIn()
	case out.busy:
		return busyReportEvery
	}
	return reportEvery
}

// Refresh sends a report now. It returns the registry's error, or an error if this host is fenced.
func (u *Uplink) Refresh(ctx context.Context) error {
	_, err := u.refresh(ctx)
	return err
}

func (u *Uplink) refresh(ctx context.Context) (reportResult, error) {
	if err := u.Admit(); err != nil {
		return reportResult{}, err
	}
	return u.report(ctx, always)
}

// ReportNow sends a report, so that a caller who then asks the registry does not get an instance's
// earlier state. If the registry defers the report, ReportNow soon repeats it; a lost report is
// repeated later. ReportNow returns only libvirt's error, if the report lacked instances.
func (u *Uplink) ReportNow(ctx context.Context) error {
	var out reportResult
	if u.Admit() == nil {
		_ = retry.Do(ctx, retry.Backoff{First: putOffPause, Max: putOffPause}, putOffBound, func() (err error) {
			out, err = u.report(ctx, always)
			return err
		}, reportLater)
	}
	return out.blind
}

// putOffPause is the interval between attempts to send a report that the registry defers,
// putOffBound the time limit of these attempts.
const (
	putOffPause = 500 * time.Millisecond
	putOffBound = 5 * time.Second
)

// Host returns this host from the registry's last answer. Before the first answer it sends a
// report.
func (u *Uplink) Host(ctx context.Context) (api.Host, error) {
	if host, known := u.knownHost(); known {
		return host, nil
	}
	if err := u.Refresh(ctx); err != nil {
		return api.Host{}, fmt.Errorf("introduce this host to the registry: %w", err)
	}
	host, _ := u.knownHost()
	return host, nil
}
