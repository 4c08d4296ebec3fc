-- SPDX-License-Identifier: Apache-2.0
-- Moves with all guests paused: every guest is suspended before one is saved, and every guest is
-- restored before one is resumed. This needs new states, so two tables are recreated with new
-- CHECKs.

-- Stopped_us is the time when suspending the guests began, 0 before. With resuming = 1 guests may
-- be resumed.
CREATE TABLE pauses_new (
    migration_id TEXT PRIMARY KEY REFERENCES migrations (id),
    phase        TEXT NOT NULL CHECK (phase IN ('checking', 'suspending', 'saving', 'copying', 'restoring', 'cancelling', 'done')),
    request      TEXT NOT NULL CHECK (json_valid(request)),
    attempt      INTEGER NOT NULL DEFAULT 0,
    drop_end     TEXT NOT NULL DEFAULT '' CHECK (drop_end IN ('', 'src', 'dst')),
    why          TEXT CHECK (json_valid(why)),
    error        TEXT CHECK (json_valid(error)),
    stopped_us   INTEGER NOT NULL DEFAULT 0,
    resuming     INTEGER NOT NULL DEFAULT 0 CHECK (resuming IN (0, 1))
) STRICT, WITHOUT ROWID;

INSERT INTO pauses_new (migration_id, phase, request, attempt, drop_end, why, error, resuming)
SELECT migration_id, phase, request, attempt, drop_end, why, error, phase = 'done' FROM pauses;

-- Writes means that the guest writes to the shared volume. Ran_us is the time when it was resumed,
-- 0 before: from then on no older memory of another guest is restored. Discard means that an
-- operator has discarded its memory.
CREATE TABLE pause_instances_new (
    migration_id TEXT NOT NULL REFERENCES pauses_new (migration_id) ON DELETE CASCADE,
    instance_id  TEXT NOT NULL,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    state        TEXT NOT NULL CHECK (state IN ('pending', 'checked', 'suspended', 'saved', 'ready', 'restored')),
    lost         INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    save_attempt INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0,
    error        TEXT CHECK (json_valid(error)),
    writes       INTEGER NOT NULL DEFAULT 1 CHECK (writes IN (0, 1)),
    ran_us       INTEGER NOT NULL DEFAULT 0,
    discard      INTEGER NOT NULL DEFAULT 0 CHECK (discard IN (0, 1)),
    PRIMARY KEY (migration_id, instance_id)
) STRICT, WITHOUT ROWID;

-- Older moves saved guests while others still ran, and resumed guests while others were still
-- saved. So each of several guests counts as resumed.
INSERT INTO pause_instances_new (migration_id, instance_id, host_id, state, lost, save_attempt, attempt, error, ran_us)
SELECT migration_id, instance_id, host_id, state, lost, save_attempt, attempt, error,
       (SELECT COUNT(*) > 1 FROM pause_instances o WHERE o.migration_id = g.migration_id)
FROM pause_instances g;

DROP TABLE pause_instances;
DROP TABLE pauses;
ALTER TABLE pauses_new RENAME TO pauses;
ALTER TABLE pause_instances_new RENAME TO pause_instances;

CREATE INDEX pause_open ON pauses (migration_id) WHERE phase <> 'done';
CREATE INDEX pause_lost ON pause_instances (migration_id) WHERE lost = 1 AND state <> 'restored';
