-- SPDX-License-Identifier: Apache-2.0
-- Whether a drain moves volumes of several instances with all their guests paused.
ALTER TABLE drains ADD COLUMN pause_all INTEGER NOT NULL DEFAULT 0 CHECK (pause_all IN (0, 1));
