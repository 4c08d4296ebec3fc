// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
)

var conformanceInterrupts = []time.Duration{time.Nanosecond, time.Hour}

// runOf runs a fake like a program that does not run any more after ctx has ended.
func runOf(f connectortest.Fake) func(context.Context, connector.Request) (connector.Answer, error) {
	return func(ctx context.Context, in connector.Request) (connector.Answer, error) {
		if err := ctx.Err(); err != nil {
			return connector.Answer{}, err
		}
		return f.Run(ctx, "test", in)
	}
}
