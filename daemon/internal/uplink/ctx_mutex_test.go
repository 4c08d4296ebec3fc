// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"testing"
)

// An op asks for this host during the handling of a fence, which waits until the op has stopped.
func TestAnOpThatIsHaltedDoesNotWaitForAReport(t *testing.T) {
	bubble(t, func(w *world) {
		up := w.open()
		w.must(up.reporting.lock(w.t.Context())) // as rejoin does
		defer up.reporting.unlock()
		ctx, halt := context.WithCancel(w.t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := up.Host(ctx)
			asked <- err
		}()
		pass(0)
		halt()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
