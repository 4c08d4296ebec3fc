// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"context"
	"time"
)

// Await returns true at the next event about this domain or about all domains, or after lookEvery.
// It returns false when timeout fires, and an error when ctx ends.
func Await(ctx context.Context, events <-chan Event, domainID string, lookEvery time.Duration, timeout <-chan time.Time) (bool, error) {
	tick := time.NewTimer(lookEvery)
	defer tick.Stop()
	for {
		select {
		case e, open := <-events:
			if open && (e.DomainID == domainID || e.DomainID == "") {
				return true, nil
			}
			if !open {
				events = nil
			}
		case <-tick.C:
			return true, nil
		case <-timeout:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
