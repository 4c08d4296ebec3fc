// SPDX-License-Identifier: Apache-2.0

package target

import (
	"context"
	"time"
)

// It is looked whether the kernel, udev or a daemon has done its part as often as this, and less
// and less often: who looks all the time keeps a busy host from it.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Until looks until there is what is waited for, or until the time is over, which is no error.
func Until(ctx context.Context, within time.Duration, look func() (bool, error)) (bool, error) {
	over := time.Now().Add(within)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		is, err := look()
		if err != nil || is || time.Now().After(over) {
			return is, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}
