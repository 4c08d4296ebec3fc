-- SPDX-License-Identifier: Apache-2.0
-- The bytes of an instance's saved RAM, and the bytes of it that a step of a pause has saved or
-- restored. The next pause is estimated from them.
ALTER TABLE pause_instances ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pause_steps ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX pause_rate ON pause_steps (host, reached, bytes, at_us, took_ms) WHERE bytes > 0 AND took_ms > 0;
