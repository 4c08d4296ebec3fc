-- SPDX-License-Identifier: Apache-2.0
-- How the copies of a drain are verified; '' is as each move does by itself.
ALTER TABLE drains ADD COLUMN verify TEXT NOT NULL DEFAULT '' CHECK (verify IN ('', 'full', 'none'));
