-- SPDX-License-Identifier: Apache-2.0
-- The identity of the registry among its backups, tasks of hosts, and drains of pools.

-- The identity of the database. A copy that continues from an older state has the same id, and gets
-- another timeline once an operator has accepted it.
CREATE TABLE registry (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    id       TEXT NOT NULL,
    timeline INTEGER NOT NULL CHECK (timeline > 0)
) STRICT;

-- A random UUID.
INSERT INTO registry (one, id, timeline)
VALUES (1,
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
              substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
        1);

-- Tasks are calls of a host's API. Seq is their order, request the digest of the request. Status
-- and answer are set if and only if the task is done.
CREATE TABLE tasks (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    host_id    TEXT NOT NULL REFERENCES hosts (id),
    who        TEXT NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    body       TEXT,
    request    BLOB NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('queued', 'taken', 'done', 'withdrawn')),
    status     INTEGER,
    answer     TEXT,
    created_us INTEGER NOT NULL,
    CHECK ((state = 'done') = (status IS NOT NULL))
) STRICT;

CREATE INDEX task_pending ON tasks (host_id, seq) WHERE state IN ('queued', 'taken');
CREATE INDEX task_queued ON tasks (id) WHERE state = 'queued';
CREATE INDEX task_age ON tasks (created_us);

CREATE TABLE drains (
    id                         TEXT PRIMARY KEY,
    pool                       TEXT NOT NULL,
    to_pool                    TEXT NOT NULL CHECK (to_pool <> pool),
    parallel                   INTEGER NOT NULL CHECK (parallel BETWEEN 1 AND 64),
    bandwidth_bytes_per_second INTEGER NOT NULL CHECK (bandwidth_bytes_per_second >= 0),
    state                      TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'done')),
    started_us                 INTEGER NOT NULL,
    finished_us                INTEGER
) STRICT, WITHOUT ROWID;

-- A pool has at most one drain at a time.
CREATE UNIQUE INDEX drain_of_pool ON drains (pool) WHERE state IN ('running', 'paused');

-- The history of a drain outlives its volumes.
CREATE TABLE drain_volumes (
    drain_id     TEXT NOT NULL REFERENCES drains (id) ON DELETE CASCADE,
    volume_id    TEXT NOT NULL,
    volume_name  TEXT NOT NULL,
    size_bytes   INTEGER NOT NULL CHECK (size_bytes > 0),
    host         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'moving', 'moved', 'skipped', 'failed')),
    migration_id TEXT NOT NULL,
    error        TEXT CHECK (json_valid(error)),
    PRIMARY KEY (drain_id, volume_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX drain_volume_open ON drain_volumes (drain_id) WHERE state IN ('pending', 'moving');
CREATE INDEX location_pool ON locations (pool) WHERE migration_id IS NULL AND pool <> '';
