// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// readyWithin is far above what a daemon may take.
const readyWithin = 2 * time.Minute

// UntilReady returns when the daemon says at Metrics that it is ready: libvirt and the registry answer, and
// it has taken up what an earlier one has left. StartDaemon returns before that.
func (h *Host) UntilReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Metrics+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("ask whether the daemon is ready: %w", err)
	}
	ready, err := retry.Poll(ctx, 10*time.Millisecond, readyWithin, func() (bool, error) {
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
	if err == nil && !ready {
		err = fmt.Errorf("the daemon is not ready after %v", readyWithin)
	}
	return err
}
