// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
)

type hostOps struct{ *op.Runner }

// Halt implements uplink.Ops.
func (o hostOps) Halt(context.Context) error {
	o.Runner.Halt()
	return nil
}

func connectMigrations(up *uplink.Uplink, m *migrate.Manager) {
	up.Listen(migrationListener{m})
	up.RemarkInstances(m.Released.WrittenSourceNote)
	up.ReportMigrations(func(ctx context.Context) ([]api.Migration, error) { return m.List(ctx, false) })
}

type migrationListener struct{ *migrate.Manager }

// RegistryUp wakes the ops that wait for the registry.
func (l migrationListener) RegistryUp() { l.Wake(false, true) }

// switchBound is how long BeforeHalt may wait.
const switchBound = 5 * time.Second

// BeforeHalt waits until the guests that are paused for the switch to dst run again.
func (l migrationListener) BeforeHalt(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, switchBound)
	defer cancel()
	l.Monitor.AwaitSwitches(bounded)
}

// Resumed checks, after the end of a fence, the migrations that the registry may have ended.
func (l migrationListener) Resumed(ctx context.Context) error { return l.Rejoined(ctx) }

// migrationHost returns a function that returns this host's identity for the migrations. While the
// host is fenced, the identity has the old epoch.
func migrationHost(up *uplink.Uplink) func(context.Context) (move.Host, error) {
	return func(ctx context.Context) (move.Host, error) {
		h, err := up.Host(ctx)
		return move.Host{ID: h.ID, Name: h.Name, Epoch: h.Epoch}, err
	}
}
