// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// handshakeFailed is how net/http begins to say that a handshake failed.
const handshakeFailed = "http: TLS handshake error from "

// refusals passes on what net/http logs, and of failed handshakes only so many:
// anybody can make one.
type refusals struct {
	slog.Handler
	bound      *rate.Limiter
	suppressed atomic.Int64
}

func newRefusals(h slog.Handler) *refusals {
	return &refusals{Handler: h, bound: rate.NewLimiter(rate.Every(5*time.Second), 20)}
}

// Handle implements slog.Handler.
func (h *refusals) Handle(ctx context.Context, r slog.Record) error {
	text, ok := strings.CutPrefix(r.Message, handshakeFailed)
	if !ok {
		return h.Handler.Handle(ctx, r)
	}
	if !h.bound.AllowN(r.Time, 1) {
		h.suppressed.Add(1)
		return nil
	}
	from, why, _ := strings.Cut(text, ": ")
	told := slog.NewRecord(r.Time, r.Level, "a connection was refused", r.PC)
	told.AddAttrs(slog.String("from", from), slog.String("why", why))
	if n := h.suppressed.Swap(0); n > 0 {
		told.AddAttrs(slog.Int64("not_logged", n))
	}
	return h.Handler.Handle(ctx, told)
}
