// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// disksOfEach is how many disks an instance has where attachments are many.
const disksOfEach = 20

// rest is for how long the processor time of a daemon is measured that has nothing to do: at least
// a look at the images is in it.
const rest = time.Minute

// attachmentsAtStart kills a daemon with n attachments and starts another one, which then has
// nothing to do.
func attachmentsAtStart(ctx context.Context, h *host, n int64) (p point, err error) {
	for range n / disksOfEach {
		if _, err := h.adoptInstance(ctx, disksOfEach, 1<<20); err != nil {
			return p, err
		}
	}
	if h.Metrics, err = lab.FreeAddress(ctx); err != nil {
		return p, err
	}
	h.KillDaemon()
	begin := time.Now()
	if err := h.StartDaemon(ctx); err != nil {
		return p, err
	}
	if err := h.UntilReady(ctx); err != nil {
		return p, err
	}
	ready := time.Since(begin).Seconds()
	p, err = h.measured(func() error {
		select {
		case <-time.After(rest):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	p.Seconds = ready // and not that minute
	return p, err
}
