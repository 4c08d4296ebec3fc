// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// readyWithin is far above what a daemon may take.
const readyWithin = 2 * time.Minute

// UntilReady returns when the daemon says at Metrics that it is ready: libvirt and the registry
// answer, and it has taken up what an earlier one has left. StartDaemon returns before that.
func (h *Host) UntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lab.Limit(readyWithin))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !h.isReady(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not get ready: %w", ctx.Err())
		}
	}
	return nil
}

// isReady is false, too, for a daemon that does not listen yet.
func (h *Host) isReady(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Metrics+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(req)
	return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}
