-- SPDX-License-Identifier: Apache-2.0
-- Times (_us) are microseconds since 1970 in UTC. Unique indexes are the locks: they hold even if
-- the code above them is wrong.

-- The registry itself ---------------------------------------------------------------------------

-- The identity of the database. A copy that continues from an older state has the same id, and gets
-- another timeline once an operator has accepted it.
CREATE TABLE registry (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    id       TEXT NOT NULL,
    timeline INTEGER NOT NULL CHECK (timeline > 0),
    -- The key for signatures of marks. It is in the database, so that a backup on another machine
    -- still recognizes the hosts' marks. Store.Open makes it.
    mark_key BLOB NOT NULL DEFAULT x''
) STRICT;

-- Signed marks that hosts have shown and that are not in the database's history. While there is
-- one, the registry accepts no changes.
CREATE TABLE restore_proofs (
    host_id  TEXT PRIMARY KEY,
    host     TEXT NOT NULL, -- its name
    timeline INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    hash     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The site's rules that operators turn on and off.
CREATE TABLE policies (
    name    TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;

-- Hosts -----------------------------------------------------------------------------------------

CREATE TABLE hosts (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    version      TEXT NOT NULL, -- of its daemon, for display
    boot_id      TEXT NOT NULL, -- the kernel's, another one after each boot
    epoch        INTEGER NOT NULL CHECK (epoch > 0),
    fenced       INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1)),
    -- It has not rejoined since a restore was accepted: it may have volumes that only the lost
    -- history gave it.
    behind       INTEGER NOT NULL DEFAULT 0 CHECK (behind IN (0, 1)),
    last_seen_us INTEGER NOT NULL,
    created_us   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX host_behind ON hosts (behind, name);

-- The storage pools of each host, as it last reported them.
CREATE TABLE pools (
    host_id        TEXT NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    name           TEXT NOT NULL,
    type           TEXT NOT NULL,
    path           TEXT NOT NULL,
    shared         INTEGER NOT NULL CHECK (shared IN (0, 1)),
    multiattach    INTEGER NOT NULL DEFAULT 0 CHECK (multiattach IN (0, 1)), -- several guests may open its volumes
    active         INTEGER NOT NULL CHECK (active IN (0, 1)),
    capacity_bytes INTEGER NOT NULL CHECK (capacity_bytes >= 0),
    free_bytes     INTEGER NOT NULL CHECK (free_bytes >= 0),
    updated_us     INTEGER NOT NULL,
    PRIMARY KEY (host_id, name)
) STRICT, WITHOUT ROWID;

-- Tasks are calls of a host's API, in the order of seq.
CREATE TABLE tasks (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE, -- the Idempotency-Key of the call
    host_id    TEXT NOT NULL REFERENCES hosts (id),
    who        TEXT NOT NULL, -- the caller of the registry
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    body       TEXT,
    needs      TEXT NOT NULL DEFAULT '', -- the features that its daemon needs, separated by spaces
    request    BLOB NOT NULL, -- the hash of the caller's request
    state      TEXT NOT NULL CHECK (state IN ('queued', 'taken', 'done', 'withdrawn')),
    -- The answer of a task that is done: the status code of HTTP, and the body.
    status     INTEGER,
    answer     TEXT,
    created_us INTEGER NOT NULL,
    CHECK ((state = 'done') = (status IS NOT NULL))
) STRICT;

CREATE INDEX task_pending ON tasks (host_id, seq) WHERE state IN ('queued', 'taken');
CREATE INDEX task_queued ON tasks (id) WHERE state = 'queued';
CREATE INDEX task_age ON tasks (created_us);

-- Volumes ---------------------------------------------------------------------------------------

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

-- The statuses reserved and in-use are not stored: they follow from the attachments of an available
-- volume. Resizing follows from resize_op.
CREATE TABLE volumes (
    id              TEXT PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE,
    status          TEXT NOT NULL CHECK (status IN ('creating', 'available', 'deleting', 'error')),
    type_id         TEXT NOT NULL REFERENCES volume_types (id),
    bootable        INTEGER NOT NULL CHECK (bootable IN (0, 1)),
    generation      INTEGER NOT NULL CHECK (generation > 0), -- one more whenever its bytes move
    host_id         TEXT NOT NULL REFERENCES hosts (id), -- the host that cares for it
    -- The path where it was adopted: Volferry did not make its image. '' for a volume that Volferry
    -- made.
    adopted_path    TEXT NOT NULL DEFAULT '',
    -- The op that makes it larger, and the id of its host. While they are set, no other change of
    -- the volume is allowed. Both are '' if there is none.
    resize_op       TEXT NOT NULL DEFAULT '',
    resize_host     TEXT NOT NULL DEFAULT '',
    size_changed_us INTEGER NOT NULL DEFAULT 0, -- 0 for never
    created_us      INTEGER NOT NULL,
    updated_us      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX volume_type ON volumes (type_id);
CREATE INDEX volume_host ON volumes (host_id);

-- A migration's row outlives its volume. So only an open migration needs its volume, which the
-- registry refuses to delete.
CREATE TABLE migrations (
    id                TEXT PRIMARY KEY,
    volume_id         TEXT NOT NULL,
    volume_name       TEXT NOT NULL, -- when it began
    instance_id       TEXT NOT NULL, -- '' if the volume has none, or the registry leads the move
    host_id           TEXT NOT NULL REFERENCES hosts (id),
    src_attachment_id TEXT NOT NULL,
    dst_attachment_id TEXT NOT NULL,
    src               TEXT NOT NULL CHECK (json_valid(src)), -- an api.Location
    dst               TEXT NOT NULL CHECK (json_valid(dst)),
    method            TEXT NOT NULL,
    to_type_id        TEXT NOT NULL, -- its new type, '' if the volume keeps its type
    state             TEXT NOT NULL CHECK (state IN ('starting', 'started', 'copying', 'copied', 'completing', 'completed',
                                                     'cancelling', 'cancelled', 'error', 'needs_operator', 'orphaned')),
    -- The state of an orphaned migration before.
    orphaned_from     TEXT CHECK (orphaned_from IN ('starting', 'started', 'copying', 'copied', 'completing', 'cancelling', 'needs_operator')),
    op_id             TEXT NOT NULL, -- the op that changed it last
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
-- dst of that migration.
CREATE TABLE locations (
    id           INTEGER PRIMARY KEY,
    volume_id    TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    migration_id TEXT REFERENCES migrations (id),
    scope        TEXT NOT NULL, -- the id of its host, or 'shared' for a pool that several hosts see
    pool         TEXT NOT NULL,
    name         TEXT NOT NULL,
    path         TEXT NOT NULL,
    format       TEXT NOT NULL CHECK (format IN ('raw', 'qcow2')),
    size_bytes   INTEGER NOT NULL CHECK (size_bytes > 0 AND size_bytes % 512 = 0),
    -- The size of the image if the volume is only its beginning; 0 if the volume is the whole image.
    image_bytes  INTEGER NOT NULL DEFAULT 0 CHECK (image_bytes = 0 OR (image_bytes > size_bytes AND format = 'raw')),
    -- The base images of a linked clone as a JSON array, '' if the image has none.
    backing      TEXT NOT NULL DEFAULT '' CHECK (backing = '' OR json_valid(backing)),
    -- The UUID of the libvirt secret that opens a volume encrypted by QEMU, '' for other volumes.
    luks_secret  TEXT NOT NULL DEFAULT '' CHECK (luks_secret = '' OR format = 'raw'),
    -- The identity of the device when the volume was placed there; '' if it is a file, or unknown.
    identity     TEXT NOT NULL DEFAULT '',
    CHECK (path <> '' OR (pool <> '' AND name <> ''))
) STRICT;

CREATE INDEX location_volume ON locations (volume_id);
CREATE INDEX location_pool ON locations (pool) WHERE migration_id IS NULL AND pool <> '';
CREATE UNIQUE INDEX location_of_volume ON locations (volume_id) WHERE migration_id IS NULL;
CREATE UNIQUE INDEX location_of_migration ON locations (migration_id) WHERE migration_id IS NOT NULL;
CREATE UNIQUE INDEX location_path ON locations (path, scope) WHERE path <> '';
CREATE UNIQUE INDEX location_name ON locations (scope, pool, name) WHERE pool <> '' AND name <> '';

-- Instances and attachments ---------------------------------------------------------------------

CREATE TABLE instances (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    host_id     TEXT NOT NULL REFERENCES hosts (id), -- for a shelved_offloaded instance its last one
    state       TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'shelved', 'shelved_offloaded', 'error')),
    -- Why the guest of a paused instance is paused by itself: 'asleep', 'crashed', or ''.
    standstill  TEXT NOT NULL DEFAULT '',
    -- The difference that its host found between the instance and its stored state, '' for none.
    note        TEXT NOT NULL DEFAULT '',
    -- Its host has last reported that the disks of its domain are not at the locations of its
    -- volumes.
    differs     INTEGER NOT NULL DEFAULT 0 CHECK (differs IN (0, 1)),
    -- It is locked while lock_reason is set. Lock_op is the migration with the lock, '' for an
    -- operator's lock.
    lock_reason TEXT NOT NULL DEFAULT '',
    lock_op     TEXT NOT NULL DEFAULT '',
    shelf_op    TEXT NOT NULL DEFAULT '', -- the last op that shelved or unshelved it
    created_us  INTEGER NOT NULL,
    updated_us  INTEGER NOT NULL,
    UNIQUE (host_id, name)
) STRICT, WITHOUT ROWID;

-- The block device mappings of an instance. A slot without an attachment is empty, or has a disk
-- that is not a volume.
CREATE TABLE slots (
    instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
    device      TEXT NOT NULL,
    boot_index  INTEGER CHECK (boot_index >= 0),
    note        TEXT NOT NULL, -- why its disk is not a volume
    -- The definition that an emptied slot gives to the next volume; '' if unknown. It stays while
    -- the slot is filled.
    definition  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (instance_id, device),
    UNIQUE (instance_id, boot_index)
) STRICT, WITHOUT ROWID;

-- An attachment with a migration_id is the reserved dst of that migration, at that migration's
-- location.
CREATE TABLE attachments (
    id           TEXT PRIMARY KEY,
    volume_id    TEXT NOT NULL REFERENCES volumes (id),
    instance_id  TEXT NOT NULL,
    device       TEXT NOT NULL,
    mode         TEXT NOT NULL CHECK (mode IN ('rw', 'ro')),
    state        TEXT NOT NULL CHECK (state IN ('reserved', 'attaching', 'attached', 'detaching', 'error')),
    exclusive    INTEGER NOT NULL CHECK (exclusive IN (0, 1)), -- the volume is not multiattach
    migration_id TEXT REFERENCES migrations (id),
    op_id        TEXT NOT NULL, -- the op that changed it last
    created_us   INTEGER NOT NULL,
    updated_us   INTEGER NOT NULL,
    FOREIGN KEY (instance_id, device) REFERENCES slots (instance_id, device) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX attachment_exclusive ON attachments (volume_id) WHERE exclusive = 1 AND migration_id IS NULL;
CREATE UNIQUE INDEX attachment_of_migration ON attachments (migration_id) WHERE migration_id IS NOT NULL;
CREATE UNIQUE INDEX attachment_slot ON attachments (instance_id, device) WHERE migration_id IS NULL;
CREATE INDEX attachment_volume ON attachments (volume_id);
CREATE INDEX attachment_device ON attachments (instance_id, device);

-- The definition of a disk when its volume was last detached from an instance, so that it can be
-- attached again with the same settings.
CREATE TABLE detached_disks (
    instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
    volume_id   TEXT NOT NULL REFERENCES volumes (id) ON DELETE CASCADE,
    device      TEXT NOT NULL,
    definition  TEXT NOT NULL,
    PRIMARY KEY (instance_id, volume_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX detached_disk_volume ON detached_disks (volume_id);

-- Shelved and shelved_offloaded instances.
CREATE TABLE shelves (
    instance_id   TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
    definition    TEXT NOT NULL CHECK (json_valid(definition)), -- an api.InstanceDefinition
    asked_host_id TEXT NOT NULL DEFAULT '', -- the host that an operator asked to unshelve it, '' for none
    claim_op      TEXT NOT NULL DEFAULT '', -- the op that unshelves it, '' for none
    from_host_id  TEXT NOT NULL DEFAULT '', -- its host before that op
    created_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX shelf_asked ON shelves (asked_host_id) WHERE asked_host_id <> '';

-- Moves that the registry leads -----------------------------------------------------------------

-- Moves with all guests paused; each also has a row in migrations. A move while the guests write is
-- one of them, with more phases. From phase restoring on a move only goes forward.
CREATE TABLE pauses (
    migration_id TEXT PRIMARY KEY REFERENCES migrations (id),
    phase        TEXT NOT NULL CHECK (phase IN ('checking', 'making', 'tracking', 'copying', 'swapping', 'again', 'suspending', 'last', 'saving', 'restoring', 'cancelling', 'done')),
    request      TEXT NOT NULL CHECK (json_valid(request)), -- the operator's
    -- The calls of the copy host in this phase that failed or were refused temporarily.
    attempt      INTEGER NOT NULL DEFAULT 0,
    -- The end of the copy that the copy host must still remove, '' for none.
    drop_end     TEXT NOT NULL DEFAULT '' CHECK (drop_end IN ('', 'src', 'dst')),
    why          TEXT CHECK (json_valid(why)), -- the reason for cancelling
    error        TEXT CHECK (json_valid(error)), -- stops the copy host
    stopped_us   INTEGER NOT NULL DEFAULT 0, -- when suspending the guests began, 0 before
    resuming     INTEGER NOT NULL DEFAULT 0 CHECK (resuming IN (0, 1)) -- guests may be resumed
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_open ON pauses (migration_id) WHERE phase <> 'done';

-- The guests of such a move. Every guest is suspended before one is saved, and every guest is
-- restored before one is resumed.
CREATE TABLE pause_instances (
    migration_id TEXT NOT NULL REFERENCES pauses (migration_id) ON DELETE CASCADE,
    instance_id  TEXT NOT NULL,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    state        TEXT NOT NULL CHECK (state IN ('pending', 'checked', 'suspended', 'saved', 'ready', 'restored')),
    -- Its host was fenced: the move does not wait for it, and it stays locked until it is restored
    -- or its attachment is deleted.
    lost         INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    save_attempt INTEGER NOT NULL DEFAULT 0, -- repeated calls to save it
    -- The save_attempt at the start of this pause: earlier calls belong to pauses that were called
    -- off.
    save_from    INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0, -- repeated calls to restore it
    error        TEXT CHECK (json_valid(error)),
    writes       INTEGER NOT NULL DEFAULT 1 CHECK (writes IN (0, 1)), -- it may write to the shared volume
    -- When it was resumed, 0 before: from then on no older memory of another guest is restored.
    ran_us       INTEGER NOT NULL DEFAULT 0,
    discard      INTEGER NOT NULL DEFAULT 0 CHECK (discard IN (0, 1)), -- an operator has discarded its memory
    memory_bytes INTEGER NOT NULL DEFAULT 0, -- of its saved RAM, 0 if unknown
    PRIMARY KEY (migration_id, instance_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_lost ON pause_instances (migration_id) WHERE lost = 1 AND state <> 'restored';

-- The times when a move (no host), a host, or an instance on it reached a state while the guests
-- were paused.
CREATE TABLE pause_steps (
    migration_id TEXT NOT NULL REFERENCES pauses (migration_id) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    at_us        INTEGER NOT NULL,
    phase        TEXT NOT NULL, -- the phase of the move
    reached      TEXT NOT NULL, -- the state
    host         TEXT NOT NULL DEFAULT '', -- its name
    instance     TEXT NOT NULL DEFAULT '', -- its name
    took_ms      INTEGER NOT NULL DEFAULT 0, -- the host's work, by its own clock
    -- The bytes of RAM that the step has saved or restored. The next pause is estimated from them.
    bytes        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (migration_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX pause_rate ON pause_steps (host, reached, bytes, at_us, took_ms) WHERE bytes > 0 AND took_ms > 0;

-- The copies of moves while the guests write.
CREATE TABLE live_moves (
    migration_id TEXT PRIMARY KEY REFERENCES pauses (migration_id) ON DELETE CASCADE,
    generation   INTEGER NOT NULL DEFAULT 1 CHECK (generation > 0), -- of the hosts' bitmaps
    round        INTEGER NOT NULL DEFAULT 0 CHECK (round >= 0),
    unit_bytes   INTEGER NOT NULL CHECK (unit_bytes > 0), -- of the volume for each bit of a bitmap
    max_pause_ms INTEGER NOT NULL CHECK (max_pause_ms > 0),
    fruitless    INTEGER NOT NULL DEFAULT 0, -- consecutive generations that ended without a whole copy
    called_off   INTEGER NOT NULL DEFAULT 0, -- pauses that were cancelled
    left_bytes   INTEGER NOT NULL DEFAULT 0, -- to copy at the start of the last round
    slow         INTEGER NOT NULL DEFAULT 0, -- consecutive rounds that left hardly less than the round before
    throttled    INTEGER NOT NULL DEFAULT 0  -- times that guests' writes were throttled further
) STRICT, WITHOUT ROWID;

-- A host with a guest of such a move. While state is 'asked', the host may be executing the call,
-- and gets no other one.
CREATE TABLE live_hosts (
    migration_id TEXT NOT NULL REFERENCES live_moves (migration_id) ON DELETE CASCADE,
    host_id      TEXT NOT NULL REFERENCES hosts (id),
    -- The range of the volume that it copies in round 0.
    from_bytes   INTEGER NOT NULL CHECK (from_bytes >= 0),
    until_bytes  INTEGER NOT NULL CHECK (until_bytes >= from_bytes),
    -- The last call to it, '' for none, and the known result.
    verb         TEXT NOT NULL DEFAULT '' CHECK (verb IN ('', 'check', 'make', 'track', 'round', 'swap', 'read', 'last', 'end', 'untrack')),
    generation   INTEGER NOT NULL DEFAULT 0,
    round        INTEGER NOT NULL DEFAULT 0,
    attempt      INTEGER NOT NULL DEFAULT 0,
    state        TEXT NOT NULL DEFAULT '' CHECK (state IN ('', 'asked', 'done', 'ended')),
    -- Of its last round: bytes written by guests during it, bytes copied, and its duration.
    dirty_bytes  INTEGER NOT NULL DEFAULT 0,
    copied_bytes INTEGER NOT NULL DEFAULT 0,
    took_ms      INTEGER NOT NULL DEFAULT 0,
    error        TEXT CHECK (json_valid(error)), -- stops the host until an operator acts
    PRIMARY KEY (migration_id, host_id),
    CHECK ((verb = '') = (state = ''))
) STRICT, WITHOUT ROWID;

-- Drains ----------------------------------------------------------------------------------------

CREATE TABLE drains (
    id                         TEXT PRIMARY KEY,
    pool                       TEXT NOT NULL,
    to_pool                    TEXT NOT NULL CHECK (to_pool <> pool),
    state                      TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'done')),
    parallel                   INTEGER NOT NULL CHECK (parallel BETWEEN 1 AND 64), -- moves at a time
    -- The options of its moves. '' is the default of each move.
    bandwidth_bytes_per_second INTEGER NOT NULL CHECK (bandwidth_bytes_per_second >= 0), -- 0 for no limit
    pace                       TEXT NOT NULL DEFAULT '' CHECK (pace IN ('', 'off', 'gentle', 'full')),
    verify                     TEXT NOT NULL DEFAULT '' CHECK (verify IN ('', 'full', 'none')),
    delete_source              INTEGER NOT NULL DEFAULT 0 CHECK (delete_source IN (0, 1)),
    -- 'drop' for dirty bitmaps that its moves would lose, or '' to skip such volumes.
    checkpoints                TEXT NOT NULL DEFAULT '' CHECK (checkpoints IN ('', 'drop')),
    -- Whether it moves volumes of several instances with all their guests paused, or while they
    -- write, and the options of the latter.
    pause_all                  INTEGER NOT NULL DEFAULT 0 CHECK (pause_all IN (0, 1)),
    live_shared                INTEGER NOT NULL DEFAULT 0 CHECK (live_shared IN (0, 1)),
    max_pause_seconds          INTEGER NOT NULL DEFAULT 0,
    throttle_writers           INTEGER NOT NULL DEFAULT 0 CHECK (throttle_writers IN (0, 1)),
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
    host         TEXT NOT NULL, -- the name of the host that moves it
    state        TEXT NOT NULL CHECK (state IN ('pending', 'moving', 'moved', 'skipped', 'failed')),
    migration_id TEXT NOT NULL, -- of its last move, '' for none
    error        TEXT CHECK (json_valid(error)),
    PRIMARY KEY (drain_id, volume_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX drain_volume_open ON drain_volumes (drain_id) WHERE state IN ('pending', 'moving');

-- Answers and the audit trail -------------------------------------------------------------------

-- Answers to changes, for repeated requests. They are stored in order of time, so that only the
-- index of the random keys grows at random places. JSON is not checked here and in the audit trail:
-- one function each writes it, and the check would be a considerable part of the cost of a change.
CREATE TABLE idempotency (
    seq      INTEGER PRIMARY KEY,
    key      TEXT NOT NULL UNIQUE, -- the Idempotency-Key, after the owner if the key is separate
    request  BLOB NOT NULL, -- the hash of the request
    response TEXT NOT NULL,
    at_us    INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    content TEXT NOT NULL, -- an api.Event
    hash    BLOB NOT NULL CHECK (length(hash) = 32) -- the SHA-256 of the previous row's hash and this content
) STRICT;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;

CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;

-- The rows of a new database --------------------------------------------------------------------

-- The id is a random UUID.
INSERT INTO registry (one, id, timeline)
VALUES (1,
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
              substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
        1);

INSERT INTO volume_types (id, name, multiattach, created_us)
VALUES ('00000000-0000-0000-0000-000000000001', 'default', 0, 0);

INSERT INTO policies (name, enabled)
VALUES ('multiattach', 1),
       ('multiattach_bootable', 0);
