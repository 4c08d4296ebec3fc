// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/volferry/volferry/registry/internal/workflow"
)

// auditor reads the whole audit trail once, concurrently with the registry's work. A damaged trail
// appears in the log and in status, and does not stop the hosts' work.
type auditor struct {
	store *workflow.Store
	log   *slog.Logger
	ready chan struct{}
}

func (a *auditor) Run(ctx context.Context) error {
	close(a.ready)
	a.verify(ctx)
	<-ctx.Done()
	return nil
}

func (a *auditor) verify(ctx context.Context) {
	n, err := a.store.Trail.Verify(ctx)
	switch {
	case ctx.Err() != nil: // the read was incomplete
	case err != nil:
		a.log.Error("the audit trail is not what was written", "err", err)
	default:
		a.log.Info("audit trail verified", "events", n)
	}
}

func (a *auditor) Ready() <-chan struct{} { return a.ready }

func (a *auditor) String() string { return "audit" }
