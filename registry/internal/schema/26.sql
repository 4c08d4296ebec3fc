-- SPDX-License-Identifier: Apache-2.0
-- What a drain does with dirty bitmaps that its moves would lose: 'drop', or '' to skip such
-- volumes.
ALTER TABLE drains ADD COLUMN checkpoints TEXT NOT NULL DEFAULT '' CHECK (checkpoints IN ('', 'drop'));
