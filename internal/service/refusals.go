// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// refusals logs refused connections. It limits the log lines, since any client can cause one.
type refusals struct {
	log        *slog.Logger
	bound      *rate.Limiter
	suppressed atomic.Int64
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, bound: rate.NewLimiter(rate.Every(5*time.Second), 20)}
}

func (r *refusals) report(from net.Addr, why string) {
	if !r.bound.Allow() {
		r.suppressed.Add(1)
		return
	}
	attrs := []any{"from", from.String(), "why", why}
	if n := r.suppressed.Swap(0); n > 0 {
		attrs = append(attrs, "not_logged", n)
	}
	r.log.Warn("a connection was refused", attrs...)
}
