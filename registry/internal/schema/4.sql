-- SPDX-License-Identifier: Apache-2.0
-- What a restore from a backup leaves open, and drains that delete what they
-- have moved.

-- A host that is behind has not come back since a restore was accepted: it may
-- have volumes that only the lost history gave it.
ALTER TABLE hosts ADD COLUMN behind INTEGER NOT NULL DEFAULT 0 CHECK (behind IN (0, 1));
CREATE INDEX host_behind ON hosts (behind, name);

ALTER TABLE drains ADD COLUMN delete_source INTEGER NOT NULL DEFAULT 0 CHECK (delete_source IN (0, 1));
