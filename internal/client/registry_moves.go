// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/volferry/volferry/internal/api"
)

// Migrations returns the open migrations, or all, of a volume; an empty
// reference is any.
func (r *Registry) Migrations(ctx context.Context, volume string, all bool) ([]api.Migration, error) {
	flag := ""
	if all {
		flag = "1"
	}
	return ask[[]api.Migration](ctx, r, filtered("migrations", "volume", volume, "all", flag))
}

// Migration returns one migration.
func (r *Registry) Migration(ctx context.Context, ref string) (api.Migration, error) {
	return ask[api.Migration](ctx, r, to("migrations", ref))
}

// RegisterMigration locks a volume for a migration and reserves its dst.
func (r *Registry) RegisterMigration(ctx context.Context, opID string, in api.MigrationRegister) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, "/v1/migrations:register", in)
}

// TransitionMigration moves a migration to another state.
func (r *Registry) TransitionMigration(ctx context.Context, opID, ref string, in api.MigrationTransition) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, to("migrations", ref)+"/transition", in)
}

// PermitPause asks whether a guest of a move with all guests paused may be suspended,
// restored or resumed now. Each question has an op id of its own.
func (r *Registry) PermitPause(ctx context.Context, opID, ref string, in api.PausePermit) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, to("migrations", ref)+"/permit", in)
}

// AbandonMigration ends a migration of a fenced host at the registry alone.
func (r *Registry) AbandonMigration(ctx context.Context, opID, ref string, in api.MigrationAbandon) (api.Migration, error) {
	return tell[api.Migration](ctx, r, opID, http.MethodPost, to("migrations", ref)+"/abandon", in)
}

// Drains returns every drain.
func (r *Registry) Drains(ctx context.Context) ([]api.Drain, error) {
	return ask[[]api.Drain](ctx, r, "/v1/drains")
}

// Drain returns one drain.
func (r *Registry) Drain(ctx context.Context, ref string) (api.Drain, error) {
	return ask[api.Drain](ctx, r, to("drains", ref))
}

// DrainPool begins to move every volume of a pool to another pool.
func (r *Registry) DrainPool(ctx context.Context, opID, pool string, in api.PoolDrain) (api.Drain, error) {
	return tell[api.Drain](ctx, r, opID, http.MethodPost, to("pools", pool)+"/drain", in)
}

// PauseDrain begins no more moves of a drain until ResumeDrain.
func (r *Registry) PauseDrain(ctx context.Context, opID, ref string) (api.Drain, error) {
	return tell[api.Drain](ctx, r, opID, http.MethodPost, to("drains", ref)+"/pause", nil)
}

// ResumeDrain goes on with a drain that was paused.
func (r *Registry) ResumeDrain(ctx context.Context, opID, ref string) (api.Drain, error) {
	return tell[api.Drain](ctx, r, opID, http.MethodPost, to("drains", ref)+"/resume", nil)
}

// StopDrain ends a drain; what moves is let end.
func (r *Registry) StopDrain(ctx context.Context, opID, ref string) (api.Drain, error) {
	return tell[api.Drain](ctx, r, opID, http.MethodPost, to("drains", ref)+"/stop", nil)
}
