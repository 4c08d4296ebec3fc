-- SPDX-License-Identifier: Apache-2.0
-- Signed marks, and the proofs of a restore.

-- The key for signatures of marks. It is in the database, so that a backup on another machine still
-- recognizes the hosts' marks. Store.Open makes it.
ALTER TABLE registry ADD COLUMN mark_key BLOB NOT NULL DEFAULT x'';

-- Signed marks that hosts have shown and that are not in the database's history. While there is
-- one, the registry accepts no changes.
CREATE TABLE restore_proofs (
    host_id  TEXT PRIMARY KEY,
    host     TEXT NOT NULL,
    timeline INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    hash     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
