// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Do calls try until it returns nil, and waits as b says before each further call.
// It gives up with the error of the last try when again says that the error is
// final, or when within has passed since Do was called; the last try is made then.
// again is not asked about an error after which there is no other try. If ctx ends
// during a try, the error of that try is returned, and else the cause of ctx.
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
