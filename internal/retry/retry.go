// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Do calls try until it returns nil, with the delays of b. It returns the last error if again
// returns false for it, or after the time within; it makes a last try at that time, without a call
// of again. If ctx ends during a try, Do returns the error of that try; during a delay, the cause
// of ctx.
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
