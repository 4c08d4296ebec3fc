-- SPDX-License-Identifier: Apache-2.0
-- How a drain verifies its copies; '' is the default of each move.
ALTER TABLE drains ADD COLUMN verify TEXT NOT NULL DEFAULT '' CHECK (verify IN ('', 'full', 'none'));
