// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

const outageTimeout = time.Minute

var outageBackoff = retry.Backoff{First: 200 * time.Millisecond, Max: 2 * time.Second}

// isOutage reports whether err may be temporary: no answer, or the other side is not available
// yet.
func isOutage(err error) bool {
	var answer *api.Error
	if !errors.As(err, &answer) {
		return true
	}
	return answer.Code.ExitStatus() == api.ExitUnavailable && !IsStartFailure(err)
}

func retryOutage(ctx context.Context, ask func() error) error {
	return retry.Do(ctx, outageBackoff, outageTimeout, ask, isOutage)
}
