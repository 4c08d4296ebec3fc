-- SPDX-License-Identifier: Apache-2.0
-- The size of what is at a place if that is larger than the volume, which is its beginning
-- then; 0 if the volume is all of it.
ALTER TABLE locations ADD COLUMN image_bytes INTEGER NOT NULL DEFAULT 0 CHECK (image_bytes = 0 OR (image_bytes > size_bytes AND format = 'raw'));
