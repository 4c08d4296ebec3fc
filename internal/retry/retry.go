// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Do calls try until it returns nil, with the delays of b. It returns the error of the last try if
// again returns false, or after within has passed; a last try is made at that time. again is not
// called after the last try. If ctx ends during a try, Do returns the error of that try, else the
// cause of ctx.
func Do(ctx context.Context, b Backoff, within time.Duration, try func() error, again func(error) bool) error {
	began := time.Now()
	for {
		err := try()
		left := within - time.Since(began)
		if err == nil || ctx.Err() != nil || left <= 0 || !again(err) {
			return err
		}
		if err := Sleep(ctx, min(b.Next(), left)); err != nil {
			return err
		}
	}
}
