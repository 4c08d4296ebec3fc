// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// busyReportEvery is reportEvery while a migration is open, for those who watch
// it at the registry.
const busyReportEvery = time.Second

// Run reports until ctx ends, and deals with a fence.
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

// beat makes one report, or one try to come back from a fence, and returns how
// long to wait until the next. If nothing is said to have changed, and a look at the host
// finds nothing, the registry is not called before it wants to hear of the host again.
func (u *Uplink) beat(ctx context.Context, changed bool) time.Duration {
	if err := u.comeBack(ctx); err != nil {
		if u.note(err) {
			u.cfg.Log.Warn("this host was fenced and cannot come back yet", "err", err)
		}
		if reportFirst(err) {
			// The report is refused, for its epoch is over, but what this host was told is
			// compared.
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

// Refresh reports now. The error is the registry's, or says that this host is
// fenced.
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

// ReportNow reports now what has become of an instance. It only returns an error of
// libvirt, if that did not say how the instances are: the report then had none. A report
// that does not get through is repeated anyway. If the registry puts the report off,
// ReportNow waits a little and repeats it, so that a caller who then asks the registry does
// not get the earlier state.
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

// putOffPause is how long after a report that was put off the next one is sent, and
// putOffBound for how long an operation waits for that.
const (
	putOffPause = 500 * time.Millisecond
	putOffBound = 5 * time.Second
)

// Host returns this host as the registry last knew it. It asks the registry now if it never
// did.
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
