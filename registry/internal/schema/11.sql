-- SPDX-License-Identifier: Apache-2.0
-- The features that a daemon has to have for a task, with spaces between.
ALTER TABLE tasks ADD COLUMN needs TEXT NOT NULL DEFAULT '';
