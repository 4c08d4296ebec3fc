-- SPDX-License-Identifier: Apache-2.0
-- The op that makes a volume larger, and the id of its host. While they are set, no other change of
-- the volume is allowed. Both are '' if there is none.
ALTER TABLE volumes ADD COLUMN resize_op TEXT NOT NULL DEFAULT '';
ALTER TABLE volumes ADD COLUMN resize_host TEXT NOT NULL DEFAULT '';
