-- SPDX-License-Identifier: Apache-2.0
-- Whether the copy of such a move makes progress: the remaining bytes after the last round but one,
-- the number of consecutive rounds that left hardly less than the round before, and the number of
-- times that guests' writes were throttled further.
ALTER TABLE live_moves ADD COLUMN left_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE live_moves ADD COLUMN slow INTEGER NOT NULL DEFAULT 0;
ALTER TABLE live_moves ADD COLUMN throttled INTEGER NOT NULL DEFAULT 0;
