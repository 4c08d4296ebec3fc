// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Poll calls look at once and then at this interval until it returns true. It returns
// false if look did not do so within the bound: the first look after that is the last
// one. An error is that of look, or the cause of ctx.
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
