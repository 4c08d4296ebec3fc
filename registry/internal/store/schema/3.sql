-- SPDX-License-Identifier: Apache-2.0
-- Instances that no host runs, locks of instances, slots that outlive their
-- volumes, and moves with all guests paused.

-- The host of a shelved_offloaded instance is the one that had it last. The note
-- is what its host found that is not as it was left. Lock_op is the migration
-- that holds the lock, '' for an operator's.
ALTER TABLE instances ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN locked INTEGER NOT NULL DEFAULT 0 CHECK (locked IN (0, 1));
ALTER TABLE instances ADD COLUMN lock_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_who TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_op TEXT NOT NULL DEFAULT '';

-- What is known of an empty slot, so that a volume can be put there again; ''
-- where nothing is.
ALTER TABLE slots ADD COLUMN definition TEXT NOT NULL DEFAULT '';

-- An instance that is shelved or shelved_offloaded. Claim_host_id is for whom an
-- operator asked for it, '' for nobody; claim_op the op that brings it back.
CREATE TABLE shelves (
    instance_id   TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
    definition    TEXT NOT NULL CHECK (json_valid(definition)),
    claim_host_id TEXT NOT NULL DEFAULT '',
    claim_op      TEXT NOT NULL DEFAULT '',
    created_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Moves with all guests paused, beside their row in migrations. Phase is where
-- the move is; from switched on it goes forward only.
CREATE TABLE pauses (
    migration_id TEXT PRIMARY KEY REFERENCES migrations (id),
    phase        TEXT NOT NULL CHECK (phase IN ('saving', 'copying', 'restoring', 'cancelling', 'done')),
    request      TEXT NOT NULL CHECK (json_valid(request)),
    copy_host_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_open ON pauses (migration_id) WHERE phase <> 'done';

-- The guests of such a move.
CREATE TABLE pause_instances (
    migration_id TEXT NOT NULL REFERENCES pauses (migration_id) ON DELETE CASCADE,
    instance_id  TEXT NOT NULL,
    host_id      TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'saved', 'restored')),
    error        TEXT CHECK (json_valid(error)),
    PRIMARY KEY (migration_id, instance_id)
) STRICT, WITHOUT ROWID;
