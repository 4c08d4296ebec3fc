-- SPDX-License-Identifier: Apache-2.0
-- The times when a move (no host), a host, or an instance on it reached a state while the guests
-- were paused. Took_ms is the duration of the host's work by its own clock.
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
