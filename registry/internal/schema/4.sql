-- SPDX-License-Identifier: Apache-2.0
-- The open consequences of a restore from a backup, and drains that delete their sources.

-- A host with behind = 1 has not rejoined since a restore was accepted: it may have volumes that
-- only the lost history gave it.
ALTER TABLE hosts ADD COLUMN behind INTEGER NOT NULL DEFAULT 0 CHECK (behind IN (0, 1));
CREATE INDEX host_behind ON hosts (behind, name);

ALTER TABLE drains ADD COLUMN delete_source INTEGER NOT NULL DEFAULT 0 CHECK (delete_source IN (0, 1));
