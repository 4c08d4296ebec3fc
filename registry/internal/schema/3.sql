-- SPDX-License-Identifier: Apache-2.0
-- Instances without a host, locks of instances, slots that outlive their volumes, and moves with
-- all guests paused.

-- The host of a shelved_offloaded instance is its last one. Note is the difference that its host
-- found between the instance and its stored state. The instance is locked while lock_reason is set;
-- lock_op is the migration with the lock, '' for an operator's. Shelf_op is the last op that
-- shelved or unshelved it.
ALTER TABLE instances ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN lock_op TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN shelf_op TEXT NOT NULL DEFAULT '';

-- The definition that an emptied slot gives to the next volume; '' if unknown. It stays while the
-- slot is filled.
ALTER TABLE slots ADD COLUMN definition TEXT NOT NULL DEFAULT '';

-- A shelved or shelved_offloaded instance. Asked_host_id is the host that an operator asked to
-- unshelve it, '' for none. Claim_op is the op that unshelves it, '' for none, and from_host_id its
-- host before that op.
CREATE TABLE shelves (
    instance_id   TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
    definition    TEXT NOT NULL CHECK (json_valid(definition)),
    asked_host_id TEXT NOT NULL DEFAULT '',
    claim_op      TEXT NOT NULL DEFAULT '',
    from_host_id  TEXT NOT NULL DEFAULT '',
    created_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX shelf_asked ON shelves (asked_host_id) WHERE asked_host_id <> '';

-- Moves with all guests paused; each also has a row in migrations. From phase restoring on a move
-- only goes forward. Attempt counts the calls of the copy host in this phase that failed or were
-- refused temporarily; drop_end is the end of the copy that the copy host must still remove, '' for
-- none. Why is the reason for cancelling, error the error that stops the copy host.
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

-- The guests of such a move. Save_attempt counts the calls to save, attempt the calls to restore. A
-- guest is lost if its host was fenced: the move does not wait for it, and it stays locked until it
-- is restored or its attachment is deleted.
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
