// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Poll calls look at once and then at this interval until look returns true. It returns false
// after the first unsuccessful look that ends later than within. An error is look's, or the cause
// of ctx.
func Poll(ctx context.Context, interval, within time.Duration, look func() (bool, error)) (bool, error) {
	began := time.Now()
	for {
		ok, err := look()
		if err != nil || ok {
			return ok, err
		}
		if time.Since(began) >= within {
			return false, nil
		}
		if err := Sleep(ctx, interval); err != nil {
			return false, err
		}
	}
}
