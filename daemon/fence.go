// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/op"
)

// fencedOps halts the operations of a host that was fenced.
type fencedOps struct {
	runner     *op.Runner
	migrations *migrate.Manager
}

// switchBound is how long a switch has to come out of the pause of its guest,
// which may be one that this host keeps.
const switchBound = 5 * time.Second

// Halt implements uplink.Ops.
func (f *fencedOps) Halt(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	f.migrations.Quiet(bounded)
	f.runner.Halt()
	return nil
}

// Resume implements uplink.Ops.
func (f *fencedOps) Resume(ctx context.Context) error { return f.runner.Resume(ctx) }
