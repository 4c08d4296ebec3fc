-- SPDX-License-Identifier: Apache-2.0
-- Whether a drain moves volumes of several guests while they write, and the options of such a move.
ALTER TABLE drains ADD COLUMN live_shared INTEGER NOT NULL DEFAULT 0 CHECK (live_shared IN (0, 1));
ALTER TABLE drains ADD COLUMN max_pause_seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drains ADD COLUMN throttle_writers INTEGER NOT NULL DEFAULT 0 CHECK (throttle_writers IN (0, 1));
