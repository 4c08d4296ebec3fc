-- SPDX-License-Identifier: Apache-2.0
-- Instances that no host runs, locks of instances, slots that outlive their
-- volumes, and moves with all guests paused.

-- The host of a shelved_offloaded instance is the one that had it last. The note
-- is what its host found that is not as it was left. It is locked while it has a
-- lock_reason; lock_op is the migration that holds the lock, '' for an operator's.
-- Shelf_op is the op that moved it to the shelf or from it last.
ALTER TABLE instances ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_op TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN shelf_op TEXT NOT NULL DEFAULT '';

-- What is known of a slot that was emptied, so that a volume can be put there
-- again; '' where nothing is. It stays while the slot is filled.
ALTER TABLE slots ADD COLUMN definition TEXT NOT NULL DEFAULT '';

-- An instance that is shelved or shelved_offloaded. Asked_host_id is the host for
-- which an operator asked for it, '' for none. Claim_op is the op that brings it
-- back, '' for none, and from_host_id the host that had it before that op.
CREATE TABLE shelves (
    instance_id   TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
    definition    TEXT NOT NULL CHECK (json_valid(definition)),
    asked_host_id TEXT NOT NULL DEFAULT '',
    claim_op      TEXT NOT NULL DEFAULT '',
    from_host_id  TEXT NOT NULL DEFAULT '',
    created_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX shelf_asked ON shelves (asked_host_id) WHERE asked_host_id <> '';

-- Moves with all guests paused, beside their row in migrations. Phase is where
-- the move is; from restoring on it goes forward only. Attempt counts the calls of
-- the copy host that were refused for the moment or failed, in this phase; drop_end
-- is the end of the copy that the copy host has still to remove, '' for none. Why
-- is the reason for cancelling, error what stops the copy host's part.
CREATE TABLE pauses (
    migration_id TEXT PRIMARY KEY REFERENCES migrations (id),
    phase        TEXT NOT NULL CHECK (phase IN ('saving', 'copying', 'restoring', 'cancelling', 'done')),
    request      TEXT NOT NULL CHECK (json_valid(request)),
    attempt      INTEGER NOT NULL DEFAULT 0,
    drop_end     TEXT NOT NULL DEFAULT '' CHECK (drop_end IN ('', 'src', 'dst')),
    why          TEXT CHECK (json_valid(why)),
    error        TEXT CHECK (json_valid(error))
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_open ON pauses (migration_id) WHERE phase <> 'done';

-- The guests of such a move. Save_attempt counts the calls to save, attempt those
-- to wake. The move does not wait for one that is lost, because its host was fenced;
-- it stays locked until it is woken or its attachment is gone.
CREATE TABLE pause_instances (
    migration_id TEXT NOT NULL REFERENCES pauses (migration_id) ON DELETE CASCADE,
    instance_id  TEXT NOT NULL,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    state        TEXT NOT NULL CHECK (state IN ('pending', 'saved', 'restored')),
    lost         INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    save_attempt INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0,
    error        TEXT CHECK (json_valid(error)),
    PRIMARY KEY (migration_id, instance_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_lost ON pause_instances (migration_id) WHERE lost = 1 AND state <> 'restored';
