-- SPDX-License-Identifier: Apache-2.0
-- Times are microseconds since 1970 in UTC. Unique indexes are the locks: they hold even if the
-- code above them is wrong.

CREATE TABLE hosts (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    version      TEXT NOT NULL,
    boot_id      TEXT NOT NULL,
    epoch        INTEGER NOT NULL CHECK (epoch > 0),
    fenced       INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1)),
    last_seen_us INTEGER NOT NULL,
    created_us   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pools (
    host_id        TEXT NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    name           TEXT NOT NULL,
    type           TEXT NOT NULL,
    path           TEXT NOT NULL,
    shared         INTEGER NOT NULL CHECK (shared IN (0, 1)),
    multiattach    INTEGER NOT NULL DEFAULT 0 CHECK (multiattach IN (0, 1)),
    active         INTEGER NOT NULL CHECK (active IN (0, 1)),
    capacity_bytes INTEGER NOT NULL CHECK (capacity_bytes >= 0),
    free_bytes     INTEGER NOT NULL CHECK (free_bytes >= 0),
    updated_us     INTEGER NOT NULL,
    PRIMARY KEY (host_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE volume_types (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    multiattach INTEGER NOT NULL CHECK (multiattach IN (0, 1)),
    created_us  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A type without a row here may be in every pool.
CREATE TABLE volume_type_pools (
    type_id TEXT NOT NULL REFERENCES volume_types (id) ON DELETE CASCADE,
    pool    TEXT NOT NULL,
    PRIMARY KEY (type_id, pool)
) STRICT, WITHOUT ROWID;

-- The site's rules that operators turn on and off.
CREATE TABLE policies (
    name    TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;

-- The statuses reserved and in-use are not stored: they follow from the attachments of an available
-- volume.
CREATE TABLE volumes (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    status     TEXT NOT NULL CHECK (status IN ('creating', 'available', 'deleting', 'error')),
    type_id    TEXT NOT NULL REFERENCES volume_types (id),
    bootable   INTEGER NOT NULL CHECK (bootable IN (0, 1)),
    generation INTEGER NOT NULL CHECK (generation > 0),
    host_id    TEXT NOT NULL REFERENCES hosts (id),
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX volume_type ON volumes (type_id);
CREATE INDEX volume_host ON volumes (host_id);

-- A migration's row outlives its volume. So only an open migration needs its volume, which the
-- registry refuses to delete, and its new type, '' if the volume keeps its type. Orphaned_from is
-- the state of an orphaned migration before.
CREATE TABLE migrations (
    id                TEXT PRIMARY KEY,
    volume_id         TEXT NOT NULL,
    volume_name       TEXT NOT NULL,
    instance_id       TEXT NOT NULL,
    host_id           TEXT NOT NULL REFERENCES hosts (id),
    src_attachment_id TEXT NOT NULL,
    dst_attachment_id TEXT NOT NULL,
    src               TEXT NOT NULL CHECK (json_valid(src)),
    dst               TEXT NOT NULL CHECK (json_valid(dst)),
    method            TEXT NOT NULL,
    to_type_id        TEXT NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('starting', 'started', 'copying', 'copied', 'completing', 'completed',
                                                     'cancelling', 'cancelled', 'error', 'needs_operator', 'orphaned')),
    orphaned_from     TEXT CHECK (orphaned_from IN ('starting', 'started', 'copying', 'copied', 'completing', 'cancelling', 'needs_operator')),
    op_id             TEXT NOT NULL,
    error             TEXT CHECK (json_valid(error)),
    started_us        INTEGER NOT NULL,
    finished_us       INTEGER,
    CHECK ((state = 'orphaned') = (orphaned_from IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- The migration lock of a volume.
CREATE UNIQUE INDEX migration_lock ON migrations (volume_id)
    WHERE state NOT IN ('completed', 'cancelled', 'error');

CREATE INDEX migration_open ON migrations (host_id) WHERE state NOT IN ('completed', 'cancelled', 'error');
CREATE INDEX migration_volume ON migrations (volume_id);

-- All locations with present or future bytes of a volume. A row with a migration_id is the reserved
-- dst of that migration. Scope is the id of the location's host, or 'shared' for pools that several
-- hosts see.
CREATE TABLE locations (
    id           INTEGER PRIMARY KEY,
    volume_id    TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    migration_id TEXT REFERENCES migrations (id),
    scope        TEXT NOT NULL,
    pool         TEXT NOT NULL,
    name         TEXT NOT NULL,
    path         TEXT NOT NULL,
    format       TEXT NOT NULL CHECK (format IN ('raw', 'qcow2')),
    size_bytes   INTEGER NOT NULL CHECK (size_bytes > 0 AND size_bytes % 512 = 0),
    CHECK (path <> '' OR (pool <> '' AND name <> ''))
) STRICT;

CREATE INDEX location_volume ON locations (volume_id);
CREATE UNIQUE INDEX location_of_volume ON locations (volume_id) WHERE migration_id IS NULL;
CREATE UNIQUE INDEX location_of_migration ON locations (migration_id) WHERE migration_id IS NOT NULL;
CREATE UNIQUE INDEX location_path ON locations (path, scope) WHERE path <> '';
CREATE UNIQUE INDEX location_name ON locations (scope, pool, name) WHERE pool <> '' AND name <> '';

CREATE TABLE instances (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    host_id    TEXT NOT NULL REFERENCES hosts (id),
    state      TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'shelved', 'shelved_offloaded', 'error')),
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (host_id, name)
) STRICT, WITHOUT ROWID;

-- The block device mappings of an instance. A slot without an attachment is empty, or has a disk
-- that is not a volume; the note says why it is not.
CREATE TABLE slots (
    instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
    device      TEXT NOT NULL,
    boot_index  INTEGER CHECK (boot_index >= 0),
    note        TEXT NOT NULL,
    PRIMARY KEY (instance_id, device),
    UNIQUE (instance_id, boot_index)
) STRICT, WITHOUT ROWID;

-- An attachment with a migration_id is the reserved dst of that migration, at that migration's
-- location. Op_id is the op that changed it last.
CREATE TABLE attachments (
    id           TEXT PRIMARY KEY,
    volume_id    TEXT NOT NULL REFERENCES volumes (id),
    instance_id  TEXT NOT NULL,
    device       TEXT NOT NULL,
    mode         TEXT NOT NULL CHECK (mode IN ('rw', 'ro')),
    state        TEXT NOT NULL CHECK (state IN ('reserved', 'attaching', 'attached', 'detaching', 'error')),
    exclusive    INTEGER NOT NULL CHECK (exclusive IN (0, 1)),
    migration_id TEXT REFERENCES migrations (id),
    op_id        TEXT NOT NULL,
    created_us   INTEGER NOT NULL,
    updated_us   INTEGER NOT NULL,
    FOREIGN KEY (instance_id, device) REFERENCES slots (instance_id, device) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX attachment_exclusive ON attachments (volume_id) WHERE exclusive = 1 AND migration_id IS NULL;
CREATE UNIQUE INDEX attachment_of_migration ON attachments (migration_id) WHERE migration_id IS NOT NULL;
CREATE UNIQUE INDEX attachment_slot ON attachments (instance_id, device) WHERE migration_id IS NULL;
CREATE INDEX attachment_volume ON attachments (volume_id);
CREATE INDEX attachment_device ON attachments (instance_id, device);

-- Answers are stored in order of time, so that only the index of the random keys grows at random
-- places. JSON is not checked here and in the audit trail: one function each writes it, and the
-- check would be a considerable part of the cost of a change.
CREATE TABLE idempotency (
    seq      INTEGER PRIMARY KEY,
    key      TEXT NOT NULL UNIQUE,
    request  BLOB NOT NULL,
    response TEXT NOT NULL,
    at_us    INTEGER NOT NULL
) STRICT;

-- The audit trail. hash is the SHA-256 of the previous row's hash and this row's content.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    content TEXT NOT NULL,
    hash    BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;

CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;

INSERT INTO volume_types (id, name, multiattach, created_us)
VALUES ('00000000-0000-0000-0000-000000000001', 'default', 0, 0);

INSERT INTO policies (name, enabled)
VALUES ('multiattach', 1),
       ('multiattach_bootable', 0);
