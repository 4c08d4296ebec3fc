-- SPDX-License-Identifier: Apache-2.0
-- The op that makes a volume larger, and the id of the host whose op it is: until it ends
-- nothing else is done to the volume. Both are empty if there is none.
ALTER TABLE volumes ADD COLUMN resize_op TEXT NOT NULL DEFAULT '';
ALTER TABLE volumes ADD COLUMN resize_host TEXT NOT NULL DEFAULT '';
