// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends, which is an error: its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
