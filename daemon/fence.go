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

// hostOps are the operations of this host, as the uplink halts them.
type hostOps struct{ *op.Runner }

// Halt implements uplink.Ops.
func (o hostOps) Halt(context.Context) error {
	o.Runner.Halt()
	return nil
}

// connectMigrations has the migrations hear what the registry says of this host, and the
// registry hear of the migrations.
func connectMigrations(up *uplink.Uplink, m *migrate.Manager) {
	up.Listen(migrationListener{m})
	up.RemarkInstances(m.WrittenSourceNote)
	up.ReportMigrations(func(ctx context.Context) ([]api.Migration, error) { return m.List(ctx, false) })
}

// migrationListener implements uplink.Listener for the migrations.
type migrationListener struct{ *migrate.Manager }

// RegistryUp wakes what waits for the registry.
func (l migrationListener) RegistryUp() { l.Wake(false, true) }

// switchBound is how long a switch has to come out of the pause of its guest,
// which may be one that this host keeps.
const switchBound = 5 * time.Second

// BeforeHalt waits for the guests that are paused for a switch.
func (l migrationListener) BeforeHalt(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	l.AwaitSwitches(bounded)
}

// Resumed has the migrations looked at that the registry may have ended.
func (l migrationListener) Resumed(ctx context.Context) error { return l.Rejoined(ctx) }

// migrationHost is this host for the migrations. While it is fenced its epoch is
// that of before.
func migrationHost(up *uplink.Uplink) func(context.Context) (steps.Host, error) {
	return func(ctx context.Context) (steps.Host, error) {
		h, err := up.Host(ctx)
		return steps.Host{ID: h.ID, Name: h.Name, Epoch: h.Epoch}, err
	}
}
