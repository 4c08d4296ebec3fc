// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// withMigrations is the uplink's configuration with what the migrations are told, and tell:
// in which epoch the registry has this host, and that it answers. Of is asked
// when there is something to tell, since the one cannot be made without the other.
func withMigrations(cfg uplink.Config, of func() *migrate.Manager) uplink.Config {
	cfg.Migrations = func(ctx context.Context) ([]api.Migration, error) { return of().List(ctx, false) }
	cfg.OnEpoch = func(epoch int64) { of().Epoch(epoch) }
	cfg.OnUp = func() { of().Wake(false, true) }
	return cfg
}

// migrationHost is this host for the migrations. While it is fenced its epoch is
// that of before.
func migrationHost(up *uplink.Uplink) func(context.Context) (steps.Host, error) {
	return func(ctx context.Context) (steps.Host, error) {
		h, err := up.Host(ctx)
		return steps.Host{ID: h.ID, Name: h.Name, Epoch: h.Epoch}, err
	}
}

// fencedOps are the operations of a host, which are halted when it was fenced.
type fencedOps struct {
	runner     *op.Runner
	migrations *migrate.Manager
}

// switchBound is how long a switch has to come out of the pause of its guest,
// which may be one that this host keeps.
const switchBound = 5 * time.Second

// TryLock implements uplink.Ops.
func (f *fencedOps) TryLock(keys []string, do func()) bool { return f.runner.TryLock(keys, do) }

// Halt implements uplink.Ops.
func (f *fencedOps) Halt(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	f.migrations.AwaitSwitches(bounded)
	f.runner.Halt()
	return nil
}

// Resume implements uplink.Ops.
func (f *fencedOps) Resume(ctx context.Context) error {
	if err := f.runner.Resume(ctx); err != nil {
		return err
	}
	return f.migrations.Rejoined(ctx)
}
