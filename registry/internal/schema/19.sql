-- SPDX-License-Identifier: Apache-2.0
-- What the RAM of an instance takes that is saved, and how much of it a step of a pause has saved
-- or restored: by these the next pause is estimated.
ALTER TABLE pause_instances ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pause_steps ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX pause_rate ON pause_steps (host, reached, bytes, at_us, took_ms) WHERE bytes > 0 AND took_ms > 0;
