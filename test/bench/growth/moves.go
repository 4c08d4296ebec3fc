// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// movesAtOnce moves n volumes at once.
func movesAtOnce(ctx context.Context, h *host, n int64) (point, error) {
	name := func(i int64) string { return fmt.Sprintf("v%d", i) }
	for i := range n {
		if err := h.makeVolume(ctx, name(i), 64<<20, 100); err != nil {
			return point{}, err
		}
	}
	return h.measured(func() error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				_, errs[i] = h.Ctl(ctx, "--progress", "none", "volume", "migrate", name(i), "--to-pool", dstPool)
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// sizeOfVolume moves a volume of n GiB.
func sizeOfVolume(ctx context.Context, h *host, n int64) (point, error) {
	if err := h.makeVolume(ctx, "v", n<<30, 10); err != nil {
		return point{}, err
	}
	return h.measured(func() error {
		_, err := h.Ctl(ctx, "--progress", "none", "volume", "migrate", "v", "--to-pool", dstPool)
		return err
	})
}
