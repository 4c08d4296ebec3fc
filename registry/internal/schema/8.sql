-- SPDX-License-Identifier: Apache-2.0
-- Where the image of an adopted volume was: as long as the volume is there, its image is
-- one that nobody here made. Empty for volumes that were made here.
ALTER TABLE volumes ADD COLUMN adopted_path TEXT NOT NULL DEFAULT '';
