-- SPDX-License-Identifier: Apache-2.0
-- The base images of a linked clone: a JSON array, '' if the image stands alone.
ALTER TABLE locations ADD COLUMN backing TEXT NOT NULL DEFAULT '' CHECK (backing = '' OR json_valid(backing));
