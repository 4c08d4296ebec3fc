-- SPDX-License-Identifier: Apache-2.0
-- What becomes of dirty bitmaps that the moves of a drain would lose: 'drop', or '' to skip such volumes.
ALTER TABLE drains ADD COLUMN checkpoints TEXT NOT NULL DEFAULT '' CHECK (checkpoints IN ('', 'drop'));
