-- SPDX-License-Identifier: Apache-2.0
-- The base images of a linked clone as a JSON array, '' if the image has none.
ALTER TABLE locations ADD COLUMN backing TEXT NOT NULL DEFAULT '' CHECK (backing = '' OR json_valid(backing));
