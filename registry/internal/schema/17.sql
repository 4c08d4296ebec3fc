-- SPDX-License-Identifier: Apache-2.0
-- What was reached when, while the guests of a move stand still: by the move (no host), by a
-- host, or by an instance there. Took_ms is how long the host worked on it by its own clock.
CREATE TABLE pause_steps (
    migration_id TEXT NOT NULL REFERENCES pauses (migration_id) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    at_us        INTEGER NOT NULL,
    phase        TEXT NOT NULL,
    reached      TEXT NOT NULL,
    host         TEXT NOT NULL DEFAULT '',
    instance     TEXT NOT NULL DEFAULT '',
    took_ms      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (migration_id, seq)
) STRICT, WITHOUT ROWID;
