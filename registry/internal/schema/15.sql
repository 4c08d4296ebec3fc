-- SPDX-License-Identifier: Apache-2.0
-- Whether the instance's host has last reported that the disks of its domain are not at the
-- locations of its volumes.
ALTER TABLE instances ADD COLUMN differs INTEGER NOT NULL DEFAULT 0 CHECK (differs IN (0, 1));
