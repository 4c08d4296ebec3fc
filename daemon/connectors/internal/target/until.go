// SPDX-License-Identifier: Apache-2.0

package target

import (
	"context"
	"time"
)

// The pauses between two looks at the kernel, udev or a daemon grow, because constant polling
// slows a busy host.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Until calls the function look until it returns true or the time is over, which is no error.
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
