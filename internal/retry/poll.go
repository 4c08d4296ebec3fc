// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"time"
)

// Poll calls look at once, and then at this interval, until look returns true or an error. It
// returns false if an unsuccessful look ends after the time within. If ctx ends during a wait,
// Poll returns its cause.
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
