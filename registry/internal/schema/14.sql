-- SPDX-License-Identifier: Apache-2.0
-- Moves of volumes while their guests write. They are moves with all guests paused with more
-- phases, so two tables are recreated with new CHECKs.

CREATE TABLE pauses_new (
    migration_id TEXT PRIMARY KEY REFERENCES migrations (id),
    phase        TEXT NOT NULL CHECK (phase IN ('checking', 'making', 'tracking', 'copying', 'swapping', 'again', 'suspending', 'last', 'saving', 'restoring', 'cancelling', 'done')),
    request      TEXT NOT NULL CHECK (json_valid(request)),
    attempt      INTEGER NOT NULL DEFAULT 0,
    drop_end     TEXT NOT NULL DEFAULT '' CHECK (drop_end IN ('', 'src', 'dst')),
    why          TEXT CHECK (json_valid(why)),
    error        TEXT CHECK (json_valid(error)),
    stopped_us   INTEGER NOT NULL DEFAULT 0,
    resuming     INTEGER NOT NULL DEFAULT 0 CHECK (resuming IN (0, 1))
) STRICT, WITHOUT ROWID;

INSERT INTO pauses_new (migration_id, phase, request, attempt, drop_end, why, error, stopped_us, resuming)
SELECT migration_id, phase, request, attempt, drop_end, why, error, stopped_us, resuming FROM pauses;

-- Save_from is the save_attempt at the start of this pause of the instance: earlier calls belong to
-- pauses that were called off.
CREATE TABLE pause_instances_new (
    migration_id TEXT NOT NULL REFERENCES pauses_new (migration_id) ON DELETE CASCADE,
    instance_id  TEXT NOT NULL,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    state        TEXT NOT NULL CHECK (state IN ('pending', 'checked', 'suspended', 'saved', 'ready', 'restored')),
    lost         INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    save_attempt INTEGER NOT NULL DEFAULT 0,
    save_from    INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0,
    error        TEXT CHECK (json_valid(error)),
    writes       INTEGER NOT NULL DEFAULT 1 CHECK (writes IN (0, 1)),
    ran_us       INTEGER NOT NULL DEFAULT 0,
    discard      INTEGER NOT NULL DEFAULT 0 CHECK (discard IN (0, 1)),
    PRIMARY KEY (migration_id, instance_id)
) STRICT, WITHOUT ROWID;

INSERT INTO pause_instances_new (migration_id, instance_id, host_id, state, lost, save_attempt, attempt, error, writes, ran_us, discard)
SELECT migration_id, instance_id, host_id, state, lost, save_attempt, attempt, error, writes, ran_us, discard FROM pause_instances;

DROP TABLE pause_instances;
DROP TABLE pauses;
ALTER TABLE pauses_new RENAME TO pauses;
ALTER TABLE pause_instances_new RENAME TO pause_instances;

CREATE INDEX pause_open ON pauses (migration_id) WHERE phase <> 'done';
CREATE INDEX pause_lost ON pause_instances (migration_id) WHERE lost = 1 AND state <> 'restored';

-- The progress of the copy. Fruitless counts consecutive generations that ended without a whole
-- copy, called_off the pauses that were cancelled.
CREATE TABLE live_moves (
    migration_id TEXT PRIMARY KEY REFERENCES pauses (migration_id) ON DELETE CASCADE,
    generation   INTEGER NOT NULL DEFAULT 1 CHECK (generation > 0),
    round        INTEGER NOT NULL DEFAULT 0 CHECK (round >= 0),
    unit_bytes   INTEGER NOT NULL CHECK (unit_bytes > 0),
    max_pause_ms INTEGER NOT NULL CHECK (max_pause_ms > 0),
    fruitless    INTEGER NOT NULL DEFAULT 0,
    called_off   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A host with a guest of such a move, and the range of the volume that it copies. Verb, generation,
-- round and attempt are the last call to it, '' for none. While state is 'asked', the host may be
-- executing the call, and gets no other one. The last three numbers are of its last round: bytes
-- written by guests during it, bytes copied, and its duration.
CREATE TABLE live_hosts (
    migration_id TEXT NOT NULL REFERENCES live_moves (migration_id) ON DELETE CASCADE,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    from_bytes   INTEGER NOT NULL CHECK (from_bytes >= 0),
    until_bytes  INTEGER NOT NULL CHECK (until_bytes >= from_bytes),
    verb         TEXT NOT NULL DEFAULT '' CHECK (verb IN ('', 'check', 'make', 'track', 'round', 'swap', 'read', 'last', 'end', 'untrack')),
    generation   INTEGER NOT NULL DEFAULT 0,
    round        INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0,
    state        TEXT NOT NULL DEFAULT '' CHECK (state IN ('', 'asked', 'done', 'ended')),
    dirty_bytes  INTEGER NOT NULL DEFAULT 0,
    copied_bytes INTEGER NOT NULL DEFAULT 0,
    took_ms      INTEGER NOT NULL DEFAULT 0,
    error        TEXT CHECK (json_valid(error)),
    PRIMARY KEY (migration_id, host_id),
    CHECK ((verb = '') = (state = ''))
) STRICT, WITHOUT ROWID;
