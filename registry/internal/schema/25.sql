-- SPDX-License-Identifier: Apache-2.0
-- Why the guest of a paused instance is paused by itself: 'asleep', 'crashed', or ''.
ALTER TABLE instances ADD COLUMN standstill TEXT NOT NULL DEFAULT '';
