-- SPDX-License-Identifier: Apache-2.0
-- Whether a drain moves the volumes that several instances have with all their guests paused.
ALTER TABLE drains ADD COLUMN pause_all INTEGER NOT NULL DEFAULT 0 CHECK (pause_all IN (0, 1));
