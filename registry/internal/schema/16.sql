-- SPDX-License-Identifier: Apache-2.0
-- How far the copies of a drain give way to guests; empty is the default.
ALTER TABLE drains ADD COLUMN pace TEXT NOT NULL DEFAULT '' CHECK (pace IN ('', 'off', 'gentle', 'full'));
