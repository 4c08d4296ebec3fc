-- SPDX-License-Identifier: Apache-2.0
-- The size of the image if the volume is only its beginning; 0 if the volume is the whole image.
ALTER TABLE locations ADD COLUMN image_bytes INTEGER NOT NULL DEFAULT 0 CHECK (image_bytes = 0 OR (image_bytes > size_bytes AND format = 'raw'));
