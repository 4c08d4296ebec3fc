-- SPDX-License-Identifier: Apache-2.0
-- Why the guest of an instance whose state is paused stands still of its own accord: asleep, crashed, or ''.
ALTER TABLE instances ADD COLUMN standstill TEXT NOT NULL DEFAULT '';
