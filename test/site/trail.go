// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// What a registry says in its log of the audit trail that it finds at its start.
const (
	trailVerified = "audit trail verified"
	trailTampered = "the audit trail is not what was written"
)

// verifyTrail starts the registry, which is stopped, once more. The error says that the audit trail
// is not what the registry has written, now or at a start before. The registry is stopped when it
// returns.
func (r *Registry) verifyTrail(ctx context.Context) error {
	verified := strings.Count(r.log(), trailVerified)
	if err := r.Start(ctx); err != nil {
		return err
	}
	defer r.Stop()
	ctx, cancel := context.WithTimeout(ctx, lab.Limit(startTimeout))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		switch log := r.log(); {
		case strings.Contains(log, trailTampered):
			return fmt.Errorf("of %s the registry says: %s\n%s", r.DB(), trailTampered, tail(r.Log()))
		case strings.Count(log, trailVerified) > verified:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the registry does not say whether the audit trail of %s is what it has written: %w", r.DB(), ctx.Err())
		}
	}
}

func (r *Registry) log() string {
	text, _ := os.ReadFile(r.Log()) // none is empty
	return string(text)
}
