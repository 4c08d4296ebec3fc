-- SPDX-License-Identifier: Apache-2.0
-- Marks that only the registry can make, and the proof of a restore.

-- The key that marks are signed with. It is in the database, so that a backup on
-- another machine still knows the marks that hosts were told; Store.Open makes it.
ALTER TABLE registry ADD COLUMN mark_key BLOB NOT NULL DEFAULT x'';

-- Marks of this registry, shown by hosts, whose events the database does not have:
-- while there is one the registry takes no changes.
CREATE TABLE restore_proofs (
    host_id  TEXT PRIMARY KEY,
    host     TEXT NOT NULL,
    timeline INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    hash     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
