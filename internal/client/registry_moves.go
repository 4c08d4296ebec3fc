// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Migrations returns the open migrations of a volume, or with all also the ended ones. An empty
// reference means all volumes.
func (r *Registry) Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error) {
	flag := ""
	if all {
		flag = "1"
	}
	return list(ctx, r, routes.ListMigrations.With("volume", volume).With("all", flag))
}

// EachOpenMigration calls do with every open migration until an error, without holding the list in
// memory.
func (r *Registry) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return each(ctx, r, routes.ListMigrations, do)
}

// Migration returns one migration.
func (r *Registry) Migration(ctx context.Context, ref string) (api.Migration, error) {
	return ask(ctx, r, routes.ShowMigration, ref)
}

// RegisterMigration locks a volume for a migration and reserves its destination.
func (r *Registry) RegisterMigration(ctx context.Context, opID string, in api.MigrationRegister) (api.Migration, error) {
	return change(ctx, r, routes.RegisterMigration, opID, in)
}

// TransitionMigration moves a migration to another state.
func (r *Registry) TransitionMigration(ctx context.Context, opID, ref string, in api.MigrationTransition) (api.Migration, error) {
	return change(ctx, r, routes.TransitionMigration, opID, in, ref)
}

// PermitPause asks for permission to suspend, restore or resume a guest of a move with all guests
// paused. Each request needs its own op id.
func (r *Registry) PermitPause(ctx context.Context, opID, ref string, in api.PausePermit) (api.Migration, error) {
	return change(ctx, r, routes.PermitPause, opID, in, ref)
}

// AbandonMigration ends a migration of a fenced host, in the registry only.
func (r *Registry) AbandonMigration(ctx context.Context, opID, ref string, in api.MigrationAbandon) (api.Migration, error) {
	return change(ctx, r, routes.AbandonMigration, opID, in, ref)
}
