// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"sync"
)

// inParallel runs do for 0 to n-1, all at once.
func inParallel(n int, do func(int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
