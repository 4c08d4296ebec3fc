-- SPDX-License-Identifier: Apache-2.0
-- The features that a daemon needs for the task, separated by spaces.
ALTER TABLE tasks ADD COLUMN needs TEXT NOT NULL DEFAULT '';
