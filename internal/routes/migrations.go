// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
)

// Routes of migrations.
var (
	ListMigrations = get[[]api.Migration]("/v1/migrations",
		"List the open migrations, with all=1 also those that are over", registry(own, "volume"), daemon(Answers), query("all"), paged(migrationOrder))
	ListReleased = get[[]api.ReleasedSource]("/v1/migrations:released",
		"List the sources that the moves of a host have left and that are still there", registry(never, "host"), daemon(Answers), query("volume"))
	DeleteSource = post[None, api.ReleasedSource]("/v1/migrations/{migration}/delete-source",
		"Delete the source that a completed migration has left, if nothing uses it and nothing has written to it since; with force=1 also one of which nobody can tell whether it was written", registry(never), daemon(Answers), query("force"))
	ShowMigration = get[api.Migration]("/v1/migrations/{migration}",
		"Show a migration", registry(own), daemon(Answers))
	FollowMigration = stream("/v1/migrations/{migration}/events",
		"Follow a migration", registry(own), daemon(Streams))
	UpdateMigration = patch[api.MigrationUpdate, api.Migration]("/v1/migrations/{migration}",
		"Change a migration while it runs", registry(never), daemon(Answers))
	CopyMigration = post[None, api.Migration]("/v1/migrations/{migration}/copy",
		"Copy from src to dst", registry(never), daemon(Answers, waitParameter), begins)
	CompleteMigration = post[api.PauseEnd, api.Migration]("/v1/migrations/{migration}/complete",
		"End a migration at dst", registry(own), daemon(Answers, waitParameter), begins)
	CancelMigration = post[api.PauseEnd, api.Migration]("/v1/migrations/{migration}/cancel",
		"End a migration at src", registry(own), daemon(Answers, waitParameter), begins)
	AbandonMigration = post[api.MigrationAbandon, api.Migration]("/v1/migrations/{migration}/abandon",
		"End a migration whose host is fenced, saying which copy is kept", registry(never), daemon(PassesOn), needs(httpjson.Fence))
)

// Routes for a host's report of its changes to a migration.
var (
	RegisterMigration = report[api.MigrationRegister, api.Migration]("/v1/migrations:register",
		"Lock a volume for a migration and reserve its destination")
	TransitionMigration = report[api.MigrationTransition, api.Migration]("/v1/migrations/{migration}/transition",
		"Move a migration from one state to another")
	PermitPause = report[api.PausePermit, api.Migration]("/v1/migrations/{migration}/permit",
		"Permit a host to suspend, restore or resume a guest of a move with all guests paused")
)

// Routes for the registry to make a host copy a volume while all its guests are saved.
var (
	ListSaved = get[[]api.SavedInstance]("/v1/migrations/{migration}/saved",
		"List what was done here for a move with all guests paused, whether the registry knows the migration or not", daemon(Answers))
	CheckCopy = post[api.CopySaved, api.Location]("/v1/migrations/{migration}/check-copy",
		"Check that a volume can be copied while its guests are saved; nothing is changed", daemon(Answers))
	CopySaved = post[api.CopySaved, api.Migration]("/v1/migrations/{migration}/copy-saved",
		"Copy a volume whose guests are all saved", daemon(Answers), begins)
	DropSaved = post[api.DropSaved, api.Op]("/v1/migrations/{migration}/drop-saved",
		"Remove one end of the copy of a volume whose guests were saved", daemon(Answers))
)
