// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
)

// timedPairs is how many attaches with their detaches are timed.
const timedPairs = 10

// operationsBefore measures an attach with its detach after n operations of the kind.
func operationsBefore(ctx context.Context, h *host, n int64) (point, error) {
	instance, err := h.adoptInstance(ctx, 1, 1<<20)
	if err != nil {
		return point{}, err
	}
	if err := h.makeVolume(ctx, "v", 1<<20, 0); err != nil {
		return point{}, err
	}
	pairs := func(count int64) error {
		for range count {
			for _, verb := range []string{"attach", "detach"} {
				if _, err := h.Ctl(ctx, "volume", verb, "v", instance); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := pairs(n / 2); err != nil {
		return point{}, err
	}
	p, err := h.measured(func() error { return pairs(timedPairs) })
	p.Seconds, p.CPUSeconds = p.Seconds/timedPairs, p.CPUSeconds/timedPairs
	return p, err
}
