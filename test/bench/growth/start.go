// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// disksOfEach is how many disks an instance has where attachments are many.
const disksOfEach = 20

// attachmentsAtStart kills a daemon with n attachments and starts another one.
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
	p.Seconds = time.Since(begin).Seconds()
	return p, h.memory(&p)
}
