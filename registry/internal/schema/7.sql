-- SPDX-License-Identifier: Apache-2.0
-- Volumes that grew.

-- The time of the last change of the size; 0 is never.
ALTER TABLE volumes ADD COLUMN size_changed_us INTEGER NOT NULL DEFAULT 0;
