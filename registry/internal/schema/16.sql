-- SPDX-License-Identifier: Apache-2.0
-- How much the copies of a drain yield to guests; '' is the default.
ALTER TABLE drains ADD COLUMN pace TEXT NOT NULL DEFAULT '' CHECK (pace IN ('', 'off', 'gentle', 'full'));
