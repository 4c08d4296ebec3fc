-- SPDX-License-Identifier: Apache-2.0
-- Whether the copy of such a move gets ahead: what was left to copy after the last round but one,
-- how many rounds in a row have left hardly less than the one before, and how many times what
-- the guests may write was made less.
ALTER TABLE live_moves ADD COLUMN left_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE live_moves ADD COLUMN slow INTEGER NOT NULL DEFAULT 0;
ALTER TABLE live_moves ADD COLUMN throttled INTEGER NOT NULL DEFAULT 0;
